#include "tutti/models/transformer/parallel.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

std::vector<std::vector<int>> embedding_groups(const Grid& grid, int last_stage) {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < grid.size(); ++rank) {
    if (!grid.is_first_stage(rank)) continue;
    groups.push_back({rank});
    if (last_stage > 0) groups.back().push_back(grid.on_stage(rank, last_stage));
  }
  return groups;
}

// Whether a stage's messages are split over its tensor ranks: where that saves bytes between hosts and the parts are
// put together within one. All ranks of a model decide alike.
bool splits_messages(const Parallel& parallel, bool wanted) {
  if (!wanted || parallel.sequence_parallel || parallel.tensor.size() == 1 || parallel.pipeline.size() == 1)
    return false;
  const std::int32_t apart = parallel.tensor.nodes() == 1 && parallel.pipeline.nodes() > 1;
  return all_reduce(parallel.model, apart, ReduceOp::kMin) != 0;
}

}  // namespace

Parallel make_parallel(const Group& world, const GridOptions& grid_sizes, const ParallelLayout& layout) {
  const Grid grid(world.size(), grid_sizes);
  const auto along = [&](const char* token) {
    return world.new_subgroups(grid.groups(token), std::string(token)).or_throw();
  };
  Parallel parallel{.sequence_parallel = layout.sequence_parallel, .world = world};
  parallel.tensor = along("tp");
  parallel.context = along("cp");
  parallel.pipeline = along("pp");
  parallel.data = along("dp");
  parallel.averaging = along("dp-cp");
  parallel.model = along("tp-pp");
  parallel.last_stage = layout.last_stage.value_or(grid.pipeline_size() - 1);
  parallel.embedding = world.new_subgroups(embedding_groups(grid, parallel.last_stage), "embedding").or_throw();
  if (splits_messages(parallel, layout.split_messages)) parallel.message_parts = parallel.tensor;
  return parallel;
}

}  // namespace tutti
