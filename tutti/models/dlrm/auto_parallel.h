#pragma once
// --parallel auto: the planner places the tables on the ranks that there are. No LibTorch here.
//
//   const auto plans = choose_placement(options, architecture, cluster, {}).or_throw();
//   run(world, with_placement(options, plans.best.at(0)), architecture, sources, checkpoints);
#include "tutti/models/dlrm/architecture.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/planning/training/recommendation_plan.h"

namespace tutti::dlrm {

// The model as the planner sees it, with the lookups that `options` ask for.
RecommendationModel planned_model(const Architecture& architecture, const Options& options);
// Samples of a step: batches whose gradients are added up are read together.
std::int64_t samples_of_step(const TrainingOptions& options);
// What of `options` the planner needs: --wire, --no-shared-tables.
RecommendationOptions planning_options(const Options& options);

// The placements for the devices of `cluster`, the fastest first. `given`: the one that the user wants, as --placement
// names it, or empty; a --plan file is such a one too. kInvalidArgument if none fits into memory; else as
// plan_recommendation(), or place_tables() for a file.
Result<RecommendationPlans> choose_placement(const Options& options, const Architecture& architecture,
                                             const Cluster& cluster, const std::string& given);
// The options with this placement.
Options with_placement(Options options, const RankedPlacement& plan);

}  // namespace tutti::dlrm
