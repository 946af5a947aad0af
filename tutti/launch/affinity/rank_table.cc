#include "tutti/launch/affinity/rank_table.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace tutti::launch {
namespace {

using nlohmann::json;

constexpr std::size_t kMostRuns = 256;   // of equal shares in a NodeInfo
constexpr std::size_t kLongestRun = 64;  // NodeInfo::run goes into a file

std::vector<std::string> parse_shares(const json& runs, int ranks) {
  std::vector<std::string> shares;
  for (const auto& run : runs) {
    if (!run.is_array() || run.size() != 2 || !run[0].is_string() || !run[1].is_number_integer()) return {};
    const auto count = run[1].get<std::int64_t>();
    if (count < 1 || count > ranks - int(shares.size())) return {};
    shares.insert(shares.end(), std::size_t(count), run[0].get<std::string>());
  }
  return shares;
}

bool is_run_id(const std::string& text) {
  return text.size() <= kLongestRun && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

struct Line {
  std::string ranks, host, local_ranks, share;
};

std::string run_text(const char* noun, int first, int count) {
  const std::string number = std::to_string(first);
  if (count == 1) return std::string(noun) + " " + number;
  return std::string(noun) + "s " + number + "-" + std::to_string(first + count - 1);
}

std::string share_of(const NodeRows& node, int local_rank) {
  return std::size_t(local_rank) < node.shares.size() ? node.shares[std::size_t(local_rank)] : std::string();
}

Line line_of(const NodeRows& node, int first, int count, std::string share) {
  return {run_text("rank", node.first_rank + first, count), node.host, run_text("local rank", first, count),
          std::move(share)};
}

std::vector<Line> lines_of(const NodeRows& node) {
  std::vector<Line> lines;
  for (int first = 0; first < node.ranks;) {
    const std::string share = share_of(node, first);
    int count = 1;
    while (first + count < node.ranks && share_of(node, first + count) == share) ++count;
    lines.push_back(line_of(node, first, count, share));
    first += count;
  }
  return lines;
}

// All ranks of a node in one line.
Line short_line_of(const NodeRows& node) {
  const std::string first = share_of(node, 0), last = share_of(node, node.ranks - 1);
  return line_of(node, 0, node.ranks, first == last ? first : first + " ... " + last);
}

}  // namespace

std::string encode(const NodeInfo& info) {
  auto runs = json::array();
  for (const std::string& text : info.shares) {
    if (!runs.empty() && runs.back()[0] == text) {
      runs.back()[1] = runs.back()[1].get<int>() + 1;
    } else {
      runs.push_back({text, 1});
    }
  }
  if (runs.size() > kMostRuns) runs.clear();
  return json{{"shares", runs}, {"run", info.run}}.dump();
}

NodeInfo parse_node_info(const std::string& text, int ranks) {
  NodeInfo info;
  const auto note = json::parse(text, nullptr, false);
  if (!note.is_object()) return info;
  if (const auto shares = note.find("shares"); shares != note.end() && shares->is_array())
    info.shares = parse_shares(*shares, ranks);
  if (const auto run = note.find("run"); run != note.end() && run->is_string() && is_run_id(run->get<std::string>()))
    info.run = run->get<std::string>();
  return info;
}

std::vector<NodeRows> rows_of(const Round& round) {
  std::vector<NodeRows> rows;
  int first_rank = 0;
  for (std::size_t node = 0; node < round.nodes.size(); ++node) {
    const NodeFacts& facts = round.nodes[node];
    if (round.node == 0 || round.node == int(node))
      rows.push_back({facts.host, first_rank, facts.ranks, parse_node_info(facts.about, facts.ranks).shares});
    first_rank += facts.ranks;
  }
  return rows;
}

std::vector<std::string> rank_table(const std::vector<NodeRows>& nodes, std::size_t most) {
  std::vector<Line> lines;
  for (const NodeRows& node : nodes) {
    const auto lines_here = lines_of(node);
    lines.insert(lines.end(), lines_here.begin(), lines_here.end());
  }
  if (lines.size() > most) {
    lines.clear();
    std::transform(nodes.begin(), nodes.end(), std::back_inserter(lines), short_line_of);
  }
  std::size_t ranks = 0, hosts = 0, locals = 0;
  for (const Line& line : lines) {
    ranks = std::max(ranks, line.ranks.size());
    hosts = std::max(hosts, line.host.size());
    locals = std::max(locals, line.local_ranks.size());
  }
  std::vector<std::string> table;
  for (Line& line : lines) {
    line.ranks.resize(ranks, ' ');
    line.host.resize(hosts, ' ');
    if (!line.share.empty()) line.local_ranks.resize(locals, ' ');
    table.push_back("  " + line.ranks + "  on " + line.host + "  " + line.local_ranks +
                    (line.share.empty() ? "" : "  " + line.share));
  }
  return table;
}

}  // namespace tutti::launch
