#include "tutti/comm/agree.h"

#include <nlohmann/json.hpp>

#include "tutti/comm/objects.h"

namespace tutti {
namespace {

using nlohmann::json;

std::string encode(const Error& error) {
  return json{{"code", int(error.code)},      {"detail", error.detail},     {"hint", error.hint},
              {"operation", error.operation}, {"errno", error.errno_value}, {"waited", error.waited},
              {"limit", error.limit},         {"cause", error.cause}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Error decode(const std::string& text, int rank) {
  const json from = json::parse(text, nullptr, /*allow_exceptions=*/false);
  Error error{.code = Code::kInternal, .detail = "reported an error that cannot be read", .peer = rank};
  if (!from.is_object()) return error;
  try {
    const int code = from.at("code");
    error = {.code = code < 0 || code > int(Code::kInternal) ? Code::kInternal : Code(code),
             .detail = "rank " + std::to_string(rank) + ": " + from.at("detail").get<std::string>(),
             .hint = from.at("hint"),
             .operation = from.at("operation"),
             .waited = from.at("waited"),
             .limit = from.at("limit"),
             .errno_value = from.at("errno"),
             .cause = from.at("cause")};
  } catch (const json::exception&) {
  }
  return error;
}

}  // namespace

Status agree(const Group& group, const Status& mine, CallSite at) {
  if (!group || group.size() == 1) return mine;
  try {
    const auto words = all_gather_bytes(group, mine.ok() ? std::string() : encode(mine.error()), {}, at);
    for (int rank = 0; rank < group.size(); ++rank)
      if (!words[std::size_t(rank)].empty()) return decode(words[std::size_t(rank)], rank);
    return {};
  } catch (const Exception& error) {
    return error.error();
  }
}

}  // namespace tutti
