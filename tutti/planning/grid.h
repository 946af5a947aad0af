#pragma once
// The ranks of a job with several kinds of parallelism, in Megatron-LM's layout. An order such as "tp-cp-ep-dp-pp"
// names the axes; the LEFTMOST axis varies fastest. So tensor ranks are adjacent and pipeline stages are far apart.
// Pure arithmetic over Mesh. Mistakes throw Exception with a message that names values that fit.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/planning/mesh.h"

namespace tutti {

struct GridOptions {
  int tensor = 1, pipeline = 1, context = 1;
  // Megatron's default; "tp-cp-ep-pp-dp" is --use-tp-pp-dp-mapping. Any order of these names; a missing axis has size
  // 1. "ep" exists so that Megatron's orders are valid. There are no experts, so its size is 1.
  std::string order = "tp-cp-ep-dp-pp";
};

class Grid {
 public:
  // world = tensor x context x data x pipeline. The data-parallel size follows from the others.
  Grid(int world, const GridOptions& options);

  int size() const { return mesh_.size(); }
  int tensor_size() const { return options_.tensor; }
  int pipeline_size() const { return options_.pipeline; }
  int context_size() const { return options_.context; }
  int data_size() const { return data_; }
  // The axes tp, cp, ep, dp, pp, the slowest first.
  const Mesh& mesh() const { return mesh_; }

  // The coordinate of a rank along an axis.
  int tensor_rank(int rank) const { return mesh_.coordinate(rank, "tp"); }
  int pipeline_rank(int rank) const { return mesh_.coordinate(rank, "pp"); }
  int context_rank(int rank) const { return mesh_.coordinate(rank, "cp"); }
  int data_rank(int rank) const { return mesh_.coordinate(rank, "dp"); }

  // The ranks, ascending, that share all coordinates with `rank` except those along the axes in `token`: "tp", "tp-pp"
  // (Megatron's "model parallel" group), "dp-cp" (the ranks that average gradients), ...
  std::vector<int> group_of(int rank, std::string_view token) const;
  // All these groups, ordered by their first rank: size() divided by the product of the named sizes.
  std::vector<std::vector<int>> groups(std::string_view token) const;
  // The index of the rank's group in groups(token): the color for Group::split().
  int group_index(int rank, std::string_view token) const;

  bool is_first_stage(int rank) const { return pipeline_rank(rank) == 0; }
  bool is_last_stage(int rank) const { return pipeline_rank(rank) == options_.pipeline - 1; }
  // The rank with the same coordinates on another stage. `stage` wraps around: -1 is the last stage.
  int on_stage(int rank, int stage) const;
  int next_stage(int rank) const { return on_stage(rank, pipeline_rank(rank) + 1); }
  int previous_stage(int rank) const { return on_stage(rank, pipeline_rank(rank) - 1); }
  // The ranks that hold the (tied) word embeddings: the first stage and the last stage, or one rank if they are the
  // same.
  std::vector<int> embedding_group(int rank) const;

  // "tp=2 x dp=2 x pp=4 (16 ranks)"
  std::string to_string() const;

 private:
  GridOptions options_;
  int data_;
  Mesh mesh_;
};

}  // namespace tutti
