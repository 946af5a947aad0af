#pragma once
// The ranks of a job that is parallel in several ways at once, as Megatron-LM lays them out: an order such as
// "tp-cp-ep-dp-pp" names the axes, the LEFTMOST varies fastest. So tensor ranks are neighbours, stages of a pipeline
// are far apart. Pure arithmetic over Mesh. Mistakes throw Exception, in one sentence with what would fit.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/planning/mesh.h"

namespace tutti {

struct GridOptions {
  int tensor = 1, pipeline = 1, context = 1;
  // Megatron's default; "tp-cp-ep-pp-dp" is --use-tp-pp-dp-mapping. Any order of these names; one that is missing has
  // size 1. "ep" is there so that Megatron's orders can be given: there are no experts here, its size is 1.
  std::string order = "tp-cp-ep-dp-pp";
};

class Grid {
 public:
  // world = tensor x context x data x pipeline; data is what the others leave.
  Grid(int world, const GridOptions& options);

  int size() const { return mesh_.size(); }
  int tensor_size() const { return options_.tensor; }
  int pipeline_size() const { return options_.pipeline; }
  int context_size() const { return options_.context; }
  int data_size() const { return data_; }
  // Axes by their names tp, cp, ep, dp, pp, the slowest first.
  const Mesh& mesh() const { return mesh_; }

  // The place of a rank along an axis.
  int tensor_rank(int rank) const { return mesh_.coordinate(rank, "tp"); }
  int pipeline_rank(int rank) const { return mesh_.coordinate(rank, "pp"); }
  int context_rank(int rank) const { return mesh_.coordinate(rank, "cp"); }
  int data_rank(int rank) const { return mesh_.coordinate(rank, "dp"); }

  // The ranks, ascending, that share with `rank` every coordinate but those along the axes of `token`: "tp", "tp-pp"
  // (Megatron's "model parallel" group), "dp-cp" (who averages gradients), ...
  std::vector<int> group_of(int rank, std::string_view token) const;
  // All of them, by their first rank: size() over the product of the named sizes.
  std::vector<std::vector<int>> groups(std::string_view token) const;
  // The number of the group among them: the colour for Group::split().
  int group_index(int rank, std::string_view token) const;

  bool is_first_stage(int rank) const { return pipeline_rank(rank) == 0; }
  bool is_last_stage(int rank) const { return pipeline_rank(rank) == options_.pipeline - 1; }
  // The rank with the same coordinates on another stage: `stage` counts round, so -1 is the last one.
  int on_stage(int rank, int stage) const;
  int next_stage(int rank) const { return on_stage(rank, pipeline_rank(rank) + 1); }
  int previous_stage(int rank) const { return on_stage(rank, pipeline_rank(rank) - 1); }
  // Who keeps the (tied) word embeddings: the first stage and the last one; one rank if these are the same.
  std::vector<int> embedding_group(int rank) const;

  // "tp=2 x dp=2 x pp=4 (16 ranks)"
  std::string to_string() const;

 private:
  GridOptions options_;
  int data_;
  Mesh mesh_;
};

}  // namespace tutti
