#include "tutti/launch/monitor/node_status.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

using StatusJson = nlohmann::ordered_json;

std::string dump(const StatusJson& json) { return json.dump(-1, ' ', false, StatusJson::error_handler_t::replace); }

// The JSON comes from another process; its text is shown on a terminal and its numbers are used.
struct NoStatus {};  // thrown by the readers, caught by parse()

constexpr double kLongestReply = 1e9;  // seconds, 30 years

std::int64_t whole(const StatusJson& json, const char* name, std::int64_t least, std::int64_t most,
                   std::optional<std::int64_t> otherwise = {}) {
  const auto at = json.find(name);
  if (at == json.end() && otherwise) return *otherwise;
  if (at == json.end() || !at->is_number_integer()) throw NoStatus();
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > std::uint64_t(INT64_MAX)) throw NoStatus();
  const auto value = at->get<std::int64_t>();
  if (value < least || value > most) throw NoStatus();
  return value;
}

double real(const StatusJson& json, const char* name, double least, double most, double otherwise) {
  const auto at = json.find(name);
  if (at == json.end()) return otherwise;
  if (!at->is_number()) throw NoStatus();
  const double value = *at;
  if (!(value >= least && value <= most)) throw NoStatus();
  return value;
}

// One line, without bytes that control a terminal.
std::string words(const StatusJson& json, const char* name, std::optional<std::string> otherwise = {}) {
  const auto at = json.find(name);
  if (at == json.end() && otherwise) return *otherwise;
  if (at == json.end() || !at->is_string()) throw NoStatus();
  return sanitize_line(at->get_ref<const std::string&>());
}

RankStatus rank_of(const StatusJson& json) {
  return {.rank = int(whole(json, "rank", 0, INT32_MAX)),
          .pid = int(whole(json, "pid", -1, INT32_MAX)),
          .state = words(json, "state"),
          .step = whole(json, "step", -1, INT64_MAX, -1),
          .steps_a_second = real(json, "steps_a_second", -1, kLongestReply, -1),
          .waits = real(json, "waits", -1, kLongestReply, -1),
          .doing = words(json, "doing", ""),
          .seconds = real(json, "seconds", -1, kLongestReply, -1),
          .alarm = words(json, "alarm", ""),
          .since_progress = real(json, "since_progress", -1, kLongestReply, -1),
          .resident = std::uint64_t(whole(json, "resident", 0, INT64_MAX, 0))};
}

NodeStatus node_of(const StatusJson& json) {
  NodeStatus node;
  node.job = words(json, "job");
  node.nodes = int(whole(json, "nodes", 1, INT32_MAX));
  node.node = int(whole(json, "node", 0, node.nodes - 1));
  node.world_size = int(whole(json, "world_size", 1, INT32_MAX));
  node.host = words(json, "host");
  node.attempt = int(whole(json, "attempt", 0, INT32_MAX));
  node.restarts = int(whole(json, "restarts", 0, INT32_MAX));
  node.seconds = real(json, "seconds", 0, kLongestReply, 0);
  node.age = real(json, "age", 0, kLongestReply, 0);
  node.trouble = words(json, "trouble", "");
  for (const StatusJson& rank : json.at("ranks")) node.ranks.push_back(rank_of(rank));
  return node;
}

template <class T, class Make>
Result<T> parse(const std::string& text, const Make& make) {
  const auto bad = [] {
    return Error{.code = Code::kCorrupt,
                 .detail = "the status of an agent cannot be parsed",
                 .hint = "does it run another release of tutti (tutti --version)?"};
  };
  const StatusJson json = StatusJson::parse(text, nullptr, false);
  if (json.is_discarded()) return bad();
  try {
    return make(json);
  } catch (const StatusJson::exception&) {
    return bad();
  } catch (const NoStatus&) {
    return bad();
  }
}

// Shortened to the width of the terminal; 0: any.
std::string cut(std::string line, int width) {
  if (width == 0 || line.size() <= std::size_t(width)) return line;
  std::size_t end = std::size_t(width);
  while (end > 0 && (line[end] & 0xc0) == 0x80) --end;  // never half a UTF-8 character
  line.resize(end);
  return line;
}

// A column as wide as its widest cell; numbers are aligned to the right.
struct Column {
  const char* title;
  bool number;
  std::vector<std::string> cells;
};

std::string table_of(const std::vector<Column>& columns, std::size_t rows, int width) {
  std::string text;
  const auto line = [&](const auto& cell) {
    std::string made;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      std::size_t wide = std::string(columns[c].title).size();
      for (const std::string& other : columns[c].cells) wide = std::max(wide, other.size());
      const std::string text_of_cell = cell(columns[c]);
      const std::string room(wide - text_of_cell.size(), ' ');
      made += (c ? "  " : "") + (columns[c].number ? room + text_of_cell : text_of_cell + room);
    }
    made.erase(made.find_last_not_of(' ') + 1);
    text += cut(std::move(made), width) + "\n";
  };
  line([](const Column& column) { return std::string(column.title); });
  for (std::size_t row = 0; row < rows; ++row) line([&](const Column& column) { return column.cells[row]; });
  return text;
}

std::string rate_text(double rate) {
  if (rate < 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, rate < 10 ? "%.2f" : rate < 100 ? "%.1f" : "%.0f", rate);
  return text;
}

}  // namespace

std::string encode(const NodeStatus& status) {
  StatusJson json = {{"job", status.job},
                     {"node", status.node},
                     {"nodes", status.nodes},
                     {"world_size", status.world_size},
                     {"host", status.host},
                     {"attempt", status.attempt},
                     {"restarts", status.restarts},
                     {"seconds", status.seconds},
                     {"age", status.age}};
  if (!status.trouble.empty()) json["trouble"] = status.trouble;
  json["ranks"] = StatusJson::array();
  for (const RankStatus& rank : status.ranks) {
    json["ranks"].push_back({{"rank", rank.rank},
                             {"pid", rank.pid},
                             {"state", rank.state},
                             {"step", rank.step},
                             {"steps_a_second", rank.steps_a_second},
                             {"waits", rank.waits},
                             {"doing", rank.doing},
                             {"seconds", rank.seconds},
                             {"since_progress", rank.since_progress},
                             {"resident", rank.resident}});
    if (!rank.alarm.empty()) json["ranks"].back()["alarm"] = rank.alarm;
  }
  return dump(json);
}

Result<NodeStatus> parse_node_status(const std::string& text) {
  return parse<NodeStatus>(text, [](const StatusJson& json) { return node_of(json); });
}

std::string encode_answer(const std::vector<std::string>& nodes) { return "{\"nodes\":[" + join(nodes, ",") + "]}\n"; }

Result<std::vector<NodeStatus>> parse_answer(const std::string& text) {
  return parse<std::vector<NodeStatus>>(text, [](const StatusJson& json) {
    std::vector<NodeStatus> nodes;
    for (const StatusJson& node : json.at("nodes")) nodes.push_back(node_of(node));
    return nodes;
  });
}

std::optional<int> slow_rank(const std::vector<NodeStatus>& nodes) {
  constexpr double kMost = 0.2, kLeastOfOthers = 0.8;
  std::optional<int> found;
  int others = 0;
  for (const NodeStatus& node : nodes) {
    for (const RankStatus& rank : node.ranks) {
      if (rank.waits < 0 || rank.state != "runs") return {};
      if (rank.waits >= kLeastOfOthers) {
        ++others;
      } else if (rank.waits > kMost || found) {
        return {};
      } else {
        found = rank.rank;
      }
    }
  }
  return others > 0 ? found : std::nullopt;
}

std::string status_table(std::vector<NodeStatus> nodes, int lines, int width) {
  if (nodes.empty()) return {};
  const NodeStatus first = nodes.front();
  std::sort(nodes.begin(), nodes.end(), [](const NodeStatus& a, const NodeStatus& b) { return a.node < b.node; });
  std::string text;
  int used = 1;  // the columns' names
  const auto say = [&](const std::string& line) {
    text += cut(line, width) + "\n";
    ++used;
  };
  say("job " + first.job + ": " + std::to_string(first.world_size) + (first.world_size == 1 ? " rank" : " ranks") +
      " on " + std::to_string(first.nodes) + (first.nodes == 1 ? " node" : " nodes") + ", up " +
      seconds_text(first.seconds) + ", " + std::to_string(first.restarts) +
      (first.restarts == 1 ? " restart" : " restarts"));
  const auto slow = slow_rank(nodes);
  if (slow) say("rank " + std::to_string(*slow) + " is slow: all others wait for it most of the time");
  for (const NodeStatus& node : nodes)
    if (!node.trouble.empty()) say("node " + std::to_string(node.node) + " (" + node.host + "): " + node.trouble);
  for (const NodeStatus& node : nodes)
    for (const RankStatus& rank : node.ranks)
      if (!rank.alarm.empty()) say("rank " + std::to_string(rank.rank) + ": " + rank.alarm);
  std::vector<Column> columns = {{"RANK", true},   {"HOST", false},  {"PID", true},   {"STATE", false},
                                 {"STEP", true},   {"STEP/S", true}, {"WAITS", true}, {"PROGRESS", true},
                                 {"MEMORY", true}, {"FOR", true},    {"DOING", false}};
  std::size_t rows = 0, all = 0;
  for (const NodeStatus& node : nodes) {
    for (const RankStatus& rank : node.ranks) {
      ++all;
      if (lines > 0 && used + int(rows) + 1 >= lines) continue;
      ++rows;
      const std::string cells[] = {std::to_string(rank.rank),
                                   node.host,
                                   std::to_string(rank.pid),
                                   slow == rank.rank ? "slow" : rank.state,
                                   rank.step < 0 ? "" : std::to_string(rank.step),
                                   rate_text(rank.steps_a_second),
                                   rank.waits < 0 ? "" : std::to_string(std::lround(100 * rank.waits)) + " %",
                                   rank.since_progress < 0 ? "" : seconds_text(rank.since_progress + node.age),
                                   rank.resident ? bytes_text(rank.resident) : "",
                                   rank.seconds < 0 ? "" : seconds_text(rank.seconds),
                                   rank.doing};
      for (std::size_t c = 0; c < columns.size(); ++c) columns[c].cells.push_back(cells[c]);
    }
  }
  text += table_of(columns, rows, width);
  if (rows < all) say("... and " + std::to_string(all - rows) + " more ranks");
  return text;
}

}  // namespace tutti::launch
