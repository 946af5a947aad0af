#pragma once
// --parallel auto: the planner divides a pre-training among the ranks that there are. No LibTorch here.
//
//   const auto plans = choose_parallel(options, cluster, {"tp=2"}).or_throw();
//   pretrain(world, for_world(with_plan(options, plans[0].plan), world.size()).or_throw(), tokenizer);
#include <string>
#include <vector>

#include "tutti/models/gpt/options.h"
#include "tutti/planning/training/search.h"

namespace tutti::gpt {

// Parts of a plan that the planner may not change, besides the model and options.batches.global_batch.
using GivenParts = std::vector<std::string>;  // as planning::PlanRules::fix has them: "tp=2", "sp"

// kUsage if there is no plan for so many ranks, with the reason that rules out most. Nothing is measured for it.
Status check_can_choose(const Options& options, int world, const GivenParts& given);

// The fastest plan for the devices of `cluster`, and the plans behind it. kInvalidArgument if none fits into memory.
Result<std::vector<RankedPlan>> choose_parallel(const Options& options, const Cluster& cluster,
                                                const GivenParts& given);

// The options with the grid, the schedule, the microbatch and what is sharded and recomputed of `plan`.
Options with_plan(Options options, const ParallelPlan& plan);

}  // namespace tutti::gpt
