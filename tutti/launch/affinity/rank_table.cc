#include "tutti/launch/affinity/rank_table.h"

#include <algorithm>

#include "tutti/launch/affinity/node_about.h"

namespace tutti {
namespace {

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

// Every rank's own, in one cell.
Line short_line_of(const NodeRows& node) {
  const std::string first = share_of(node, 0), last = share_of(node, node.ranks - 1);
  return line_of(node, 0, node.ranks, first == last ? first : first + " ... " + last);
}

}  // namespace

std::vector<NodeRows> rows_of(const Round& round) {
  std::vector<NodeRows> rows;
  int first_rank = 0;
  for (std::size_t node = 0; node < round.nodes.size(); ++node) {
    const NodeFacts& facts = round.nodes[node];
    if (round.node == 0 || round.node == int(node))
      rows.push_back({facts.host, first_rank, facts.ranks, parse_node_about(facts.about, facts.ranks).shares});
    first_rank += facts.ranks;
  }
  return rows;
}

std::vector<std::string> rank_table(const std::vector<NodeRows>& nodes, std::size_t most) {
  std::vector<Line> lines;
  for (const NodeRows& node : nodes) {
    const auto own = lines_of(node);
    lines.insert(lines.end(), own.begin(), own.end());
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

}  // namespace tutti
