#include "tutti/launch/watch/node_status.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

RankStatus rank_of(const Json& json) {
  RankStatus rank;
  rank.rank = json.at("rank");
  rank.pid = json.at("pid");
  rank.state = json.at("state");
  rank.step = json.value("step", std::int64_t(-1));
  rank.steps_a_second = json.value("steps_a_second", 0.0);
  rank.waits = json.value("waits", -1.0);
  rank.doing = json.value("doing", "");
  rank.seconds = json.value("seconds", -1.0);
  rank.pulse = json.value("pulse", -1.0);
  rank.resident = json.value("resident", std::uint64_t(0));
  return rank;
}

NodeStatus node_of(const Json& json) {
  NodeStatus node;
  node.job = json.at("job");
  node.node = json.at("node");
  node.nodes = json.at("nodes");
  node.world_size = json.at("world_size");
  node.host = json.at("host");
  node.attempt = json.at("attempt");
  node.restarts = json.at("restarts");
  node.seconds = json.at("seconds");
  node.age = json.value("age", 0.0);
  node.trouble = json.value("trouble", "");
  for (const Json& rank : json.at("ranks")) node.ranks.push_back(rank_of(rank));
  return node;
}

template <class T, class Make>
Result<T> parse(const std::string& text, const Make& make) {
  const auto bad = [] { return Error{.code = Code::kCorrupt, .detail = "an agent's status cannot be understood"}; };
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return bad();
  try {
    return make(json);
  } catch (const Json::exception&) {
    return bad();
  }
}

// A column as wide as its widest cell; numbers stand to the right.
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
    if (width > 0 && made.size() > std::size_t(width)) made.resize(std::size_t(width));
    text += made + "\n";
  };
  line([](const Column& column) { return std::string(column.title); });
  for (std::size_t row = 0; row < rows; ++row) line([&](const Column& column) { return column.cells[row]; });
  return text;
}

std::string rate_text(double rate) {
  if (rate <= 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, rate < 10 ? "%.2f" : rate < 100 ? "%.1f" : "%.0f", rate);
  return text;
}

}  // namespace

std::string encode(const NodeStatus& status) {
  Json json = {{"job", status.job},
               {"node", status.node},
               {"nodes", status.nodes},
               {"world_size", status.world_size},
               {"host", status.host},
               {"attempt", status.attempt},
               {"restarts", status.restarts},
               {"seconds", status.seconds},
               {"age", status.age}};
  if (!status.trouble.empty()) json["trouble"] = status.trouble;
  json["ranks"] = Json::array();
  for (const RankStatus& rank : status.ranks) {
    json["ranks"].push_back({{"rank", rank.rank},
                             {"pid", rank.pid},
                             {"state", rank.state},
                             {"step", rank.step},
                             {"steps_a_second", rank.steps_a_second},
                             {"waits", rank.waits},
                             {"doing", rank.doing},
                             {"seconds", rank.seconds},
                             {"pulse", rank.pulse},
                             {"resident", rank.resident}});
  }
  return dump(json);
}

Result<NodeStatus> parse_node_status(const std::string& text) {
  return parse<NodeStatus>(text, [](const Json& json) { return node_of(json); });
}

std::string encode_answer(const std::vector<std::string>& nodes) { return "{\"nodes\":[" + join(nodes, ",") + "]}\n"; }

Result<std::vector<NodeStatus>> parse_answer(const std::string& text) {
  return parse<std::vector<NodeStatus>>(text, [](const Json& json) {
    std::vector<NodeStatus> nodes;
    for (const Json& node : json.at("nodes")) nodes.push_back(node_of(node));
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
  std::string text = "job " + first.job + ": " + std::to_string(first.world_size) +
                     (first.world_size == 1 ? " rank" : " ranks") + " on " + std::to_string(first.nodes) +
                     (first.nodes == 1 ? " node" : " nodes") + ", up " + seconds_text(first.seconds) + ", " +
                     std::to_string(first.restarts) + (first.restarts == 1 ? " restart" : " restarts") + "\n";
  int used = 2;
  const auto slow = slow_rank(nodes);
  if (slow) {
    text += "rank " + std::to_string(*slow) + " is slow: all others wait for it most of the time\n";
    ++used;
  }
  for (const NodeStatus& node : nodes) {
    if (node.trouble.empty()) continue;
    text += "node " + std::to_string(node.node) + " (" + node.host + "): " + node.trouble + "\n";
    ++used;
  }
  std::vector<Column> columns = {{"RANK", true},   {"HOST", false},  {"PID", true},   {"STATE", false},
                                 {"STEP", true},   {"STEP/S", true}, {"WAITS", true}, {"PULSE", true},
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
                                   rank.pulse < 0 ? "" : seconds_text(rank.pulse + node.age),
                                   rank.resident ? bytes_text(rank.resident) : "",
                                   rank.seconds < 0 ? "" : seconds_text(rank.seconds),
                                   rank.doing};
      for (std::size_t c = 0; c < columns.size(); ++c) columns[c].cells.push_back(cells[c]);
    }
  }
  text += table_of(columns, rows, width);
  if (rows < all) text += "... and " + std::to_string(all - rows) + " ranks more\n";
  return text;
}

}  // namespace tutti
