// Lines of JSON rather than one value: they are written and read one by one, `grep` and `jq` work on them, and a file
// that was cut still shows how far it goes.
#include "tutti/trace/flight/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "tutti/base/text.h"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tutti flight record";
constexpr int kVersion = 1;
constexpr int kMostDumpRanks = 1000000;  // a damaged file may promise more
constexpr const char* kStates[] = {"scheduled", "started", "completed", "failed"};

// Names of groups and files are the user's, and any bytes.
std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json header_of(const FlightDump& dump) {
  Json groups = Json::array();
  for (const FlightGroup& group : dump.groups)
    groups.push_back({{"name", group.name},
                      {"id", group.id},
                      {"rank", group.rank},
                      {"left", group.left},
                      {"global_ranks", group.global_ranks}});
  return {{"format", kFormat},
          {"version", kVersion},
          {"job", dump.job},
          {"rank", dump.rank},
          {"host", dump.host},
          {"pid", dump.pid},
          {"world_size", dump.world_size},
          {"reasons", dump.reasons},
          {"failed", dump.failed},
          {"written", dump.written},
          {"wall", dump.wall},
          {"monotonic", dump.monotonic},
          {"groups", std::move(groups)},
          {"operations", dump.operations.size()}};
}

std::string quoted(const std::string& text) {
  const auto is_plain = [](unsigned char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return '"' + text + '"';
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// By hand: a Json for each of 2,000 lines takes ten times as long, while a rank that has failed waits.
void add_line(std::string& text, const FlightOperation& o) {
  const auto out = std::back_inserter(text);
  const auto add_text = [&](const char* key, const std::string& value) {
    if (!value.empty()) fmt::format_to(out, ",\"{}\":{}", key, quoted(value));
  };
  const auto add_time = [&](const char* key, std::int64_t value) {
    if (value != 0) fmt::format_to(out, ",\"{}\":{}", key, value);
  };
  fmt::format_to(out, R"({{"group":{},"sequence":{},"state":"{}","call":{},"kind":{},"dtype":{},"count":{},"bytes":{})",
                 o.group, o.sequence, name(o.state), quoted(o.call), quoted(o.kind), quoted(o.dtype), o.count, o.bytes);
  if (o.exchange) fmt::format_to(out, R"(,"exchange":true,"tag":{})", o.tag);
  if (o.root >= 0) fmt::format_to(out, ",\"{}\":{}", o.exchange ? "peer" : "root", o.root);
  add_text("op", o.op);
  add_text("way", o.way);
  add_time("scheduled", o.scheduled);
  add_time("started", o.started);
  add_time("ended", o.ended);
  add_text("site", o.site);
  text += "}\n";
}

// A whole number that fits: nlohmann's own conversion takes 1e35 for an int.
template <class T>
void read_whole(const Json& json, T& to) {
  if (json.is_number_unsigned() && std::in_range<T>(json.get<std::uint64_t>()))
    to = T(json.get<std::uint64_t>());
  else if (json.is_number_integer() && !json.is_number_unsigned() && std::in_range<T>(json.get<std::int64_t>()))
    to = T(json.get<std::int64_t>());
  else
    throw std::out_of_range("no whole number, or too large a one");
}
template <class T>
void read_whole_if_there(const Json& json, const char* key, T& to) {
  if (json.contains(key)) read_whole(json.at(key), to);
}

// Throws nlohmann's exceptions where a field is missing or of another type, and read_whole()'s.
FlightDump header_from(const Json& json) {
  FlightDump dump;
  json.at("job").get_to(dump.job);
  read_whole(json.at("rank"), dump.rank);
  read_whole(json.at("world_size"), dump.world_size);
  json.at("host").get_to(dump.host);
  read_whole(json.at("pid"), dump.pid);
  json.at("reasons").get_to(dump.reasons);
  json.at("failed").get_to(dump.failed);
  json.at("written").get_to(dump.written);
  json.at("wall").get_to(dump.wall);
  read_whole(json.at("monotonic"), dump.monotonic);
  for (const Json& from : json.at("groups")) {
    FlightGroup group;
    from.at("name").get_to(group.name);
    read_whole(from.at("id"), group.id);
    read_whole(from.at("rank"), group.rank);
    from.at("left").get_to(group.left);
    for (const Json& rank : from.at("global_ranks")) read_whole(rank, group.global_ranks.emplace_back());
    dump.groups.push_back(std::move(group));
  }
  return dump;
}

FlightOperation operation_from(const Json& json) {
  FlightOperation o;
  read_whole(json.at("group"), o.group);
  read_whole(json.at("sequence"), o.sequence);
  const std::string state = json.at("state");
  const auto found = std::find(std::begin(kStates), std::end(kStates), state);
  if (found == std::end(kStates)) throw std::out_of_range("no state");
  o.state = FlightOperation::State(found - std::begin(kStates));
  json.at("call").get_to(o.call);
  json.at("kind").get_to(o.kind);
  json.at("dtype").get_to(o.dtype);
  read_whole(json.at("count"), o.count);
  read_whole(json.at("bytes"), o.bytes);
  o.exchange = json.value("exchange", false);
  read_whole_if_there(json, "tag", o.tag);
  o.op = json.value("op", "");
  read_whole_if_there(json, o.exchange ? "peer" : "root", o.root);
  o.way = json.value("way", "");
  read_whole_if_there(json, "scheduled", o.scheduled);
  read_whole_if_there(json, "started", o.started);
  read_whole_if_there(json, "ended", o.ended);
  o.site = json.value("site", "");
  return o;
}

Error corrupt(std::string detail) { return Error{.code = Code::kCorrupt, .detail = std::move(detail)}; }

// What the rest of the code takes for granted.
Status check(const FlightDump& dump) {
  if (dump.world_size < 1 || dump.world_size > kMostDumpRanks || dump.rank < 0 || dump.rank >= dump.world_size)
    return corrupt(fmt::format("says that it is of rank {} of {}", dump.rank, dump.world_size));
  for (const FlightGroup& group : dump.groups) {
    const auto is_no_rank = [&](int rank) { return rank < 0 || rank >= dump.world_size; };
    if (std::any_of(group.global_ranks.begin(), group.global_ranks.end(), is_no_rank) || group.rank < 0 ||
        std::size_t(group.rank) >= group.global_ranks.size() ||
        group.global_ranks[std::size_t(group.rank)] != dump.rank)
      return corrupt(fmt::format("has a group \"{}\" with ranks that cannot be", group.name));
  }
  for (const FlightOperation& operation : dump.operations)
    if (operation.group < 0 || std::size_t(operation.group) >= dump.groups.size() || operation.sequence == 0)
      return corrupt("has an operation of a group that it does not have");
  return {};
}

}  // namespace

const char* name(FlightOperation::State state) { return kStates[std::size_t(state)]; }

std::string to_text(const FlightDump& dump) {
  std::string text = line_of(header_of(dump));
  for (const FlightOperation& operation : dump.operations) add_line(text, operation);
  return text;
}

Result<FlightDump> parse_flight_dump(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  const Json first = Json::parse(lines[0], nullptr, false);
  if (!first.is_object() || !first.contains("format") || first["format"] != kFormat)
    return corrupt("is no flight record of tutti");
  if (!first.contains("version") || first["version"] != kVersion)
    return corrupt(fmt::format("is a flight record of another version of tutti (this one reads version {})", kVersion));
  try {
    FlightDump dump = header_from(first);
    std::size_t promised = 0;
    read_whole(first.at("operations"), promised);
    for (std::size_t i = 1; i <= promised; ++i) {
      const Json json = i < lines.size() ? Json::parse(lines[i], nullptr, false) : Json();
      if (!json.is_object())
        return corrupt(fmt::format("is cut or damaged: {} of its {} operations can be read", i - 1, promised));
      dump.operations.push_back(operation_from(json));
    }
    TUTTI_TRY(check(dump));
    return dump;
  } catch (const std::exception&) {  // nlohmann's, and ours for a state
    return corrupt("is damaged: it lacks facts that every flight record has");
  }
}

}  // namespace tutti
