#pragma once
// The groups that divide a transformer and its training among ranks.
//
//   const tutti::Parallel parallel = tutti::make_parallel(world, {.tensor = 2, .pipeline = 2});
//
// A Group{} stands for one process, so Parallel() is a model on one rank, and Parallel{.tensor = group} one that is
// divided over `group` alone. A value: groups are handles, copies refer to the same groups.
#include <optional>

#include "tutti/comm/group.h"
#include "tutti/planning/grid.h"

namespace tutti {

struct Parallel {
  Group tensor = {};    // ranks that share every layer
  Group context = {};   // ranks that share every sequence
  Group pipeline = {};  // the stages, by rank
  Group data = {};      // ranks with the same part of the model and other samples
  // With `tensor`: norms, dropout and residuals are divided over the rows (Korthikanti et al., 2022).
  bool sequence_parallel = false;

  // What follows from these. make_parallel() fills it in.
  Group world = {};          // all ranks
  Group averaging = {};      // data and context: ranks that average gradients
  Group model = {};          // tensor and pipeline: ranks that hold the whole model together
  Group embedding = {};      // ranks with the first and the last stage; on other ranks none
  Group message_parts = {};  // MessageOptions::split_over: the tensor group, or none where messages travel whole
  int last_stage = 0;        // rank of `pipeline` that has the last stage; 0 has the first one

  bool divides_rows() const { return sequence_parallel && tensor && tensor.size() > 1; }
};

struct ParallelLayout {
  bool sequence_parallel = false;
  std::optional<int> last_stage = {};  // rank of the pipeline that has it; none: the last one
  // Lets each tensor rank send its part of what a stage sends, where that saves bytes between hosts.
  bool split_messages = true;
};

// Every rank of `world` calls. Throws Exception where the grid does not divide the world.
Parallel make_parallel(const Group& world, const GridOptions& grid, const ParallelLayout& layout = {});

}  // namespace tutti
