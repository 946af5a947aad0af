#include "tutti/models/gpt/auto_parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::gpt {

Status check_can_choose(const Options& options, int world, const GivenParts& given) {
  const planning::PlanRules rules{.fix = given};
  TUTTI_TRY(check(rules));
  std::int64_t plans = 0;
  planning::Refusals refusals;
  planning::for_each_plan(
      options.model, tutti_runtime(options.model.precision), int(options.batches.global_batch), world, rules,
      [&](const ParallelPlan&) { ++plans; }, refusals);
  if (plans > 0) return {};
  const auto most = std::max_element(refusals.begin(), refusals.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return Error{
      .code = Code::kUsage,
      .detail = fmt::format("--parallel auto: no plan divides --global-batch-size {} and {} layers among {} {}{}{}",
                            options.batches.global_batch, options.model.layers, world, world == 1 ? "rank" : "ranks",
                            given.empty() ? "" : " with what is given, " + join(given, ","),
                            most == refusals.end() ? "" : ": " + most->first),
      .hint = given.empty() ? "give a batch that the ranks divide" : "give fewer of the options, or another batch"};
}

Result<std::vector<RankedPlan>> choose_parallel(const Options& options, const Cluster& cluster,
                                                const GivenParts& given) {
  TrainingPlans plans =
      TUTTI_TRY(plan_training(options.model, cluster, int(options.batches.global_batch),
                              {.runtime = tutti_runtime(options.model.precision), .rules = {.fix = given}, .best = 3}));
  if (!plans.best.empty()) return std::move(plans.best);
  constexpr double kGiB = 1 << 30;
  double least = 0;
  for (const PlanFamily& family : plans.families)
    if (least == 0 || family.best.memory.total() < least) least = family.best.memory.total();
  return Error{
      .code = Code::kInvalidArgument,
      .detail = fmt::format("--parallel auto: no plan fits: the smallest needs {:.3g} GiB on its fullest rank, "
                            "and a rank may use {:.3g} GiB",
                            least / kGiB, plans.limit / kGiB),
      .hint = "use more hosts, or `tutti plan train`, which says what would help"};
}

Options with_plan(Options options, const ParallelPlan& plan) {
  ParallelOptions& parallel = options.parallel;
  parallel.grid.tensor = plan.tensor;
  parallel.grid.pipeline = plan.pipeline;
  parallel.grid.context = plan.context;
  parallel.schedule = plan.schedule;
  parallel.chunks = plan.chunks;
  parallel.end_layers = plan.ends;
  parallel.sequence_parallel = plan.sequence_parallel;
  parallel.shard_optimizer = plan.zero == ZeroStage::kOptimizer;
  parallel.fully_shard = plan.zero == ZeroStage::kWeights;
  parallel.overlap_gradients = plan.overlap_gradients;
  if (plan.recompute != Recomputation::kFull)
    parallel.recompute = {};
  else if (plan.recomputed_layers > 0)
    parallel.recompute = {RecomputeMethod::kBlock, plan.recomputed_layers};
  else if (parallel.recompute.method == RecomputeMethod::kNone)
    parallel.recompute = {RecomputeMethod::kUniform, 1};  // else as the user wants all layers to be recomputed
  options.batches.micro_batch = plan.micro_batch;
  return options;
}

}  // namespace tutti::gpt
