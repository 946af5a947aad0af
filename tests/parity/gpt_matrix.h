#pragma once
// Every grid of up to eight ranks: tp {1, 2, 4} x pp {1, 2, 4} x dp {1, 2} x cp {1, 2} x one or two stages on each rank
// x sequence parallelism x recomputation x schedule, all that fit together.
//
// What recomputes also has dropout and a token whose loss does not count, so both are seen on every grid.
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/gpt_grid.h"

namespace tutti::gpt {

// By the words of the documentation, not by the code that refuses.
inline bool should_fit(const Combination& c) {
  const bool chunked = c.schedule == ScheduleKind::kInterleaved || c.schedule == ScheduleKind::kZeroBubbleV;
  if (c.sequence_parallel && c.tensor == 1) return false;  // there is nothing to divide
  return chunked ? c.chunks == 2 && c.pipeline > 1 : c.chunks == 1;
}

struct GridSizes {
  int tensor, pipeline, data, context;
  int ranks() const { return tensor * pipeline * data * context; }
  std::string name() const { return fmt::format("tp{}_pp{}_dp{}_cp{}", tensor, pipeline, data, context); }
};

inline std::vector<GridSizes> grids() {
  std::vector<GridSizes> all;
  for (const int tensor : {1, 2, 4})
    for (const int pipeline : {1, 2, 4})
      for (const int data : {1, 2})
        for (const int context : {1, 2})
          if (const GridSizes grid{tensor, pipeline, data, context}; grid.ranks() <= 8) all.push_back(grid);
  return all;
}

inline std::vector<Combination> combinations(const GridSizes& grid) {
  std::vector<Combination> all;
  for (const int chunks : {1, 2})
    for (const bool sequence_parallel : {false, true})
      for (const bool recompute : {false, true})
        for (const ScheduleKind schedule : kScheduleKinds)
          all.push_back(
              {grid.tensor, grid.pipeline, grid.data, grid.context, chunks, sequence_parallel, recompute, schedule});
  return all;
}

inline std::vector<Combination> fitting(const GridSizes& grid) {
  std::vector<Combination> all = combinations(grid);
  std::erase_if(all, [](const Combination& c) { return !should_fit(c); });
  return all;
}

// Alone, with data, context and tensor parallelism. Pipelines are rejected.
inline std::vector<Combination> fitting_fully_sharded(const GridSizes& grid) {
  if (grid.pipeline > 1) return {};
  std::vector<Combination> all = fitting(grid);
  std::erase_if(all, [](const Combination& c) { return c.schedule != ScheduleKind::kOneForwardOneBackward; });
  for (Combination& c : all) c.fully_shard = true;
  return all;
}

using References = std::map<std::pair<int, bool>, Reference>;  // by layers and recomputation

inline References references_of(const std::vector<Combination>& all) {
  References references;
  for (const Combination& c : all) {
    Reference& made = references[{layers_of(c), c.recompute}];
    if (made.empty()) made = reference_of(layers_of(c), c.recompute);
  }
  return references;
}

inline void train_all(const std::vector<Combination>& all, const References& references, const Group& world,
                      Findings& findings, at::Device device = at::kCPU, int steps = kSteps) {
  for (const Combination& c : all) {
    try {
      train(c, references.at({layers_of(c), c.recompute}), world, findings, device, steps);
    } catch (const std::exception& error) {
      throw std::runtime_error(c.text() + ": " + error.what());
    }
    findings.ran();
  }
}

}  // namespace tutti::gpt
