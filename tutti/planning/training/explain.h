#pragma once
// Why the planner prefers one plan to another, in sentences, and the options that run a plan.
#include <string>
#include <vector>

#include "tutti/planning/training/search.h"

namespace tutti::planning {

// The parts of a step with their names: "compute", "recompute", ...
std::vector<std::pair<const char*, double>> parts_of(const StepTime& time);
// Likewise of a rank's memory: "weights", "gradients", ...
std::vector<std::pair<const char*, double>> parts_of(const RankMemory& memory);

// "+45.0 %, 4.5 s more: 5 s more in tensor sums: they cross nodes, for tp is more than the devices of a node"
std::string why_slower(const RankedPlan& best, const RankedPlan& other, int global_batch, const Cluster& cluster);
// "needs 93.1 GiB of 72 GiB, 61.2 GiB of them activations; recomputation would help"
std::string why_not_fit(const RankedPlan& plan, double limit);

// Options of pretrain_gpt, and with the runtime of Megatron-LM those of that program, which have the same names.
std::vector<std::string> program_options(const ParallelPlan& plan, int global_batch);

}  // namespace tutti::planning
