#include "tutti/comm/agree.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
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

// FNV-1a, of names, values and where each ends.
std::int64_t hash_of(const std::vector<NamedValue>& values) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](const std::string& text) {
    for (const char c : text) hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
    hash = (hash ^ text.size()) * 1099511628211u;
  };
  for (const auto& [name, value] : values) add(name), add(value);
  return std::int64_t(hash);
}

using NamedValues = std::vector<NamedValue>;

std::string encode(const NamedValues& values) {
  json all = json::array();
  for (const auto& [name, value] : values) all.push_back({name, value});
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}
NamedValues decode(const std::string& text) {
  NamedValues values;
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_array()) return values;
  for (const json& pair : all)
    if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string())
      values.push_back({pair[0], pair[1]});
  return values;
}

// "lr is 0.1 on rank 0, but 0.2 on ranks 1, 3", of the value number `index`; none if all ranks have the same there.
std::optional<std::string> difference_at(std::size_t index, const std::vector<NamedValues>& by_rank) {
  const auto at = [&](const NamedValues& values) {
    return index < values.size() ? values[index] : NamedValue("", "nothing");
  };
  const NamedValue first = at(by_rank[0]);
  std::optional<NamedValue> other;
  std::vector<int> ranks;
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    const NamedValue here = at(by_rank[rank]);
    if (here == first) continue;
    if (!other) other = here;
    if (here == *other) ranks.push_back(int(rank));
  }
  if (!other) return {};
  const std::string& name = first.first.empty() ? other->first : first.first;
  const bool renamed = !other->first.empty() && other->first != name;
  return name + " is " + first.second + " on rank 0, but " + (renamed ? other->first + " is " : "") + other->second +
         " on " + (ranks.size() == 1 ? "rank " : "ranks ") + ranks_text(ranks);
}

Error difference(const Group& group, const std::string& what, const std::vector<std::string>& texts,
                 const std::string& hint) {
  std::vector<NamedValues> by_rank;
  std::size_t most = 0;
  for (const std::string& text : texts) most = std::max(most, by_rank.emplace_back(decode(text)).size());
  Error error{.code = Code::kMismatch, .detail = what, .hint = hint, .group = group.name(), .rank = group.rank()};
  for (std::size_t index = 0; index < most; ++index) {
    const auto sentence = difference_at(index, by_rank);
    if (!sentence) continue;
    error.detail += ": " + *sentence;
    break;
  }
  return error;
}

}  // namespace

Status agree_on(const Group& group, const std::string& what, const std::vector<NamedValue>& values,
                const std::string& hint, CallSite at) {
  if (!group || group.size() == 1) return {};
  try {
    const std::int64_t mine = hash_of(values);
    std::int64_t seen[2] = {mine, ~mine};
    all_reduce(group, std::span<std::int64_t>(seen), ReduceOp::kMax, at);
    if (seen[0] == ~seen[1]) return {};
    return difference(group, what, all_gather_bytes(group, encode(values), {}, at), hint);
  } catch (const Exception& error) {
    return error.error();
  }
}

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
