#include "tutti/models/gpt/grid_groups.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/comm/collectives.h"

namespace tutti::gpt {
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

// Whether what a stage sends is split over its tensor ranks: where that saves bytes between hosts and the parts are put
// together within one. All ranks of a model decide alike.
bool splits_messages(const GridGroups& groups, const ParallelOptions& parallel) {
  if (!parallel.split_messages || parallel.sequence_parallel || groups.tensor.size() == 1 ||
      groups.pipeline.size() == 1)
    return false;
  const std::int32_t apart = groups.tensor.nodes() == 1 && groups.pipeline.nodes() > 1;
  return all_reduce(groups.model, apart, ReduceOp::kMin) != 0;
}

}  // namespace

GridGroups make_grid_groups(const Group& world, const Options& options) {
  Grid grid(world.size(), options.parallel.grid);
  const auto along = [&](const char* token) {
    return world.new_subgroups(grid.groups(token), std::string(token)).or_throw();
  };
  GridGroups groups{.grid = grid, .world = world};
  groups.tensor = along("tp");
  groups.context = along("cp");
  groups.pipeline = along("pp");
  groups.data = along("dp");
  groups.averaging = along("dp-cp");
  groups.model = along("tp-pp");
  const Schedule places = pipeline_schedule(options, 1, true);
  groups.last_stage = places.rank_of(places.shape.stages() - 1);
  groups.embedding = world.new_subgroups(embedding_groups(grid, groups.last_stage), "embedding").or_throw();
  if (splits_messages(groups, options.parallel)) groups.message_parts = groups.tensor;
  return groups;
}

}  // namespace tutti::gpt
