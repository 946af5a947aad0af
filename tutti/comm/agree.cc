#include "tutti/comm/agree.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/comm/objects.h"

namespace tutti {
namespace {

using nlohmann::json;

constexpr double kMostSeconds = 1e9;  // of a wait
constexpr int kMostErrno = 4095;

// -1 (unknown) for what is no time.
double seconds_of(const json& value) {
  const double seconds = value.is_number() ? value.get<double>() : -1;
  return seconds >= 0 && seconds <= kMostSeconds ? seconds : -1;
}

int number_of(const json& value, int most) {
  const bool fits = value.is_number_integer() && value >= 0 && value <= most;
  return fits ? value.get<int>() : -1;
}

}  // namespace

Status agree(const Group& group, const Status& mine, CallSite at) {
  if (!group || group.size() == 1) return mine;
  try {
    const auto errors = all_gather_bytes(group, mine.ok() ? std::string() : encode_error(mine.error()), {}, at);
    for (int rank = 0; rank < group.size(); ++rank)
      if (!errors[std::size_t(rank)].empty()) return parse_remote_error(errors[std::size_t(rank)], rank);
    return {};
  } catch (const Exception& error) {
    return error.error();
  }
}

std::string encode_error(const Error& error) {
  return json{{"code", int(error.code)},      {"detail", error.detail},     {"hint", error.hint},
              {"operation", error.operation}, {"errno", error.errno_value}, {"waited", error.waited},
              {"limit", error.limit},         {"cause", error.cause}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Error parse_remote_error(const std::string& text, int rank) {
  const json from = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Error unreadable{.code = Code::kInternal, .detail = "reported an error that cannot be read", .peer = rank};
  if (!from.is_object()) return unreadable;
  for (const char* member : {"code", "detail", "hint", "operation", "errno", "waited", "limit", "cause"})
    if (!from.contains(member)) return unreadable;
  for (const char* member : {"detail", "hint", "operation", "cause"})
    if (!from[member].is_string()) return unreadable;
  const int code = number_of(from["code"], int(Code::kInternal));
  return {.code = code < 0 ? Code::kInternal : Code(code),
          .detail = "rank " + std::to_string(rank) + ": " + from["detail"].get<std::string>(),
          .hint = from["hint"],
          .operation = from["operation"],
          .waited = seconds_of(from["waited"]),
          .limit = seconds_of(from["limit"]),
          .errno_value = std::max(0, number_of(from["errno"], kMostErrno)),
          .cause = from["cause"]};
}

}  // namespace tutti
