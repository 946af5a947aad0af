#include "tutti/models/gpt/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tutti::gpt {
namespace {

Error usage(std::string detail, std::string hint = {}) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
}

// Every size that the batch has on its way.
std::set<std::int64_t> batch_sizes(const BatchScheduleOptions& options) {
  std::set<std::int64_t> sizes;
  for (const auto& step : options.steps) sizes.insert(step.global_batch);
  if (options.steps.empty()) sizes.insert(options.global_batch);
  if (options.ramp_up)
    for (std::int64_t size = options.ramp_up->start; size < options.global_batch; size += options.ramp_up->increment)
      sizes.insert(size);
  return sizes;
}

std::int64_t last_change(const BatchScheduleOptions& options) {
  if (!options.steps.empty()) return options.steps.back().from_samples;
  return options.ramp_up ? options.ramp_up->samples : 0;
}

// Averages that overlap with backward have to have a backward to overlap with, and be the last that is done to a
// gradient, unless whole ones are left.
Status check_overlap(const ParallelOptions& parallel) {
  if (!parallel.overlap_gradients) return {};
  if (parallel.schedule == ScheduleKind::kZeroBubbleH1 || parallel.schedule == ScheduleKind::kZeroBubbleV)
    return usage(
        fmt::format("--overlap-grad-reduce hides averages behind the last backward, and --pipeline-schedule {} "
                    "puts gradients of weights off to the end of the step, when none is left to hide behind",
                    name(parallel.schedule)),
        "leave one of them out");
  const bool is_summed_after = parallel.grid.pipeline > 1 || parallel.sequence_parallel;
  if (parallel.shard_optimizer && is_summed_after)
    return usage(fmt::format("--overlap-grad-reduce with --use-distributed-optimizer leaves each rank its part of a "
                             "gradient while backward runs, and {} whole ones are summed after it",
                             parallel.grid.pipeline > 1 ? "over pipeline ranks" : "with --sequence-parallel"),
                 "leave --overlap-grad-reduce out");
  return {};
}

// Sharded weights are whole while a block runs, so a micro batch goes forward and backward before the next one.
Status check_fully_shard(const ParallelOptions& parallel) {
  if (!parallel.fully_shard) return {};
  const char* other = nullptr;
  if (parallel.grid.pipeline > 1)
    other = "--pipeline-model-parallel-size keeps several micro batches under way";
  else if (parallel.schedule != ScheduleKind::kOneForwardOneBackward)
    other = "--pipeline-schedule puts backward passes or gradients off";
  else if (parallel.shard_optimizer)
    other = "--use-distributed-optimizer shards the optimizer state, which --fsdp does already";
  else if (parallel.overlap_gradients)
    other = "--overlap-grad-reduce averages while backward runs, which --fsdp does already";
  if (!other) return {};
  return usage(fmt::format("--fsdp gathers the weights of one layer at a time, and {}", other),
               "leave one of them out");
}

Status check_parallel(const Options& options) {
  const auto& parallel = options.parallel;
  if (parallel.grid.pipeline == 1 && parallel.chunks > 1)
    return usage(
        fmt::format("{} stages on each rank are for a pipeline of several, and "
                    "--pipeline-model-parallel-size is 1",
                    parallel.chunks));
  TUTTI_TRY(check_fully_shard(parallel));
  return check_overlap(parallel);
}

Status plan(Options& options, int world) {
  const Grid grid(world, options.parallel.grid);
  const auto& parallel = options.parallel;
  TUTTI_TRY(check(options.model, {.tensor = grid.tensor_size(),
                                  .pipeline = grid.pipeline_size(),
                                  .chunks = parallel.chunks,
                                  .context = grid.context_size(),
                                  .sequence_parallel = parallel.sequence_parallel}));
  (void)stages_of(options);
  TUTTI_TRY(check_parallel(options));

  auto& batches = options.batches;
  batches.replicas = grid.data_size();
  if (batches.global_batch == 0) batches.global_batch = std::int64_t(batches.micro_batch) * batches.replicas;
  const BatchSchedule schedule(batches);
  for (const std::int64_t size : batch_sizes(batches)) {
    const int microbatches = int(size / schedule.unit());
    if (microbatches == 0) continue;
    if (parallel.microbatch_group > microbatches)
      return usage(fmt::format("--microbatch-group-size-per-virtual-pipeline-stage {}: a step has {} microbatches "
                               "({} samples in {} replicas)",
                               parallel.microbatch_group, microbatches, size, batches.replicas),
                   fmt::format("{} or less", microbatches));
    (void)pipeline_schedule(options, microbatches, false);
  }

  const std::int64_t batch = schedule.global_batch(last_change(batches));
  if (options.train_steps > 0) options.train_samples = options.train_steps * batch;
  auto& optimizer = options.optimizer;
  const auto samples_of = [&](const Length& length, std::int64_t otherwise) {
    return length.steps > 0 ? length.steps * batch : length.samples > 0 ? length.samples : otherwise;
  };
  auto& rate = optimizer.learning_rate;
  rate.decay_samples = std::max<std::int64_t>(samples_of(optimizer.decay, options.train_samples), 1);
  rate.warm_up_samples = optimizer.warm_up_fraction
                             ? std::int64_t(*optimizer.warm_up_fraction * double(rate.decay_samples))
                             : samples_of(optimizer.warm_up, 0);
  rate.anneal_samples = samples_of(optimizer.anneal, 0);
  optimizer.weight_decay.samples = std::max<std::int64_t>(options.train_samples, 1);
  (void)LearningRate(rate);
  (void)WeightDecay(optimizer.weight_decay);
  return {};
}

}  // namespace

Result<Options> for_world(Options options, int world) {
  try {
    TUTTI_TRY(plan(options, world));
  } catch (const Exception& failure) {  // of planning/, whose sentences are as good
    return failure.error();
  }
  return options;
}

std::vector<LayerRange> stages_of(const Options& options) {
  const auto& parallel = options.parallel;
  const EndLayers& ends = parallel.end_layers;
  try {
    return stages_with_ends(options.model.layers, parallel.grid.pipeline * parallel.chunks, ends);
  } catch (const Exception& failure) {
    if (ends.is_even()) throw;
    Error error = failure.error();
    error.hint = "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers give these layers";
    throw Exception(std::move(error));
  }
}

std::vector<StageLayers> stages_of_rank(const Options& options, int pipeline_rank) {
  return stages_of_rank(pipeline_schedule(options, 1, true), stages_of(options), pipeline_rank);
}

std::int64_t steps_left(const Options& options, std::int64_t consumed) {
  const BatchSchedule schedule(options.batches);
  const std::int64_t settled = last_change(options.batches);
  std::int64_t steps = 0;
  while (consumed < settled) {
    const std::int64_t batch = schedule.global_batch(consumed);
    if (consumed + batch > options.train_samples) return steps;
    consumed += batch;
    ++steps;
  }
  return steps + std::max<std::int64_t>(0, options.train_samples - consumed) / schedule.global_batch(consumed);
}

Schedule pipeline_schedule(const Options& options, int microbatches, bool forward_only) {
  const auto& parallel = options.parallel;
  return make_schedule(parallel.schedule, {.ranks = parallel.grid.pipeline,
                                           .microbatches = microbatches,
                                           .chunks = parallel.chunks,
                                           .microbatch_group = parallel.microbatch_group,
                                           .forward_only = forward_only});
}

}  // namespace tutti::gpt
