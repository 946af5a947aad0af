#pragma once
// How many ranks each node runs, and their numbers: the running sum of the counts, in the order of the nodes.
#include <optional>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::launch {

inline constexpr int kMostRanksPerNode = 4096;

// What "-n cpu", "-n gpu" and "-n auto" (GPUs if there are any, else cores) mean on this node.
struct MachineCounts {
  int cores = 1;
  int gpus = 0;
};

// The value of `-n`. "4": this node; "8,2": every node; a word: see MachineCounts.
struct RankCounts {
  int here = 1;
  std::vector<int> all;  // empty: the nodes tell each other
};
// `nodes` none: not given; a list says it. `node` is this node's number.
Result<RankCounts> parse_rank_counts(std::string_view text, std::optional<int> nodes, int node, MachineCounts machine);

struct Layout {
  std::vector<int> counts = {1};  // ranks of each node
  int node = 0;                   // this one

  int nodes() const { return int(counts.size()); }
  int here() const { return counts[std::size_t(node)]; }
  int world_size() const;
  int first_rank() const;  // of this node
};

}  // namespace tutti::launch
