#include "tutti/planning/training/training_runtime.h"

#include <fmt/format.h>

#include <vector>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr double kMebibyte = 1024.0 * 1024;

}  // namespace

TrainingRuntime tutti_runtime(Precision precision) {
  TrainingRuntime runtime;
  runtime.name = "tutti";
  // Linear layers of 16 bits are computed from weights, and summed up in a residual, of 32 bits.
  const double wide = precision == Precision::kF64 ? 8 : 4;
  runtime.element = precision == Precision::kBF16 || precision == Precision::kF16 ? 2 : wide;
  runtime.residual = runtime.logit = runtime.logit_at_work = runtime.sent_gradient = wide;
  runtime.parameters = {wide, wide, 2 * wide};
  runtime.optimizer_traffic = 9 * wide;
  // Measured on CPUs (bench/planner memory): 120 MiB of LibTorch, whose code the ranks of a host share, and 50 MiB of
  // buffers of its products. A bucket has 25 MiB; one is packed while two are sent.
  runtime.reserved = 170 * kMebibyte;
  runtime.buckets = 3 * 25 * kMebibyte;
  runtime.gives_end_layers = true;
  runtime.passing_pairs = 4;  // those of the next step and of this one, and likewise of gradients
  // The layer at work, those beside it; gradients as they come, packed, and of three layers that are sent.
  runtime.whole_weights = 3;
  runtime.whole_gradients = 5;
  return runtime;
}

TrainingRuntime megatron_runtime() {
  TrainingRuntime runtime;
  runtime.name = "megatron";
  runtime.element = runtime.residual = 2;
  runtime.parameters = {2, 4, 12};
  runtime.sent_gradient = 2;
  runtime.logit_at_work = 8;            // f32 of the softmax and of its gradient, beside the logits
  runtime.reserved = 1024 * kMebibyte;  // a context of CUDA and the buffers of NCCL
  runtime.keeps_scores = runtime.keeps_masks = true;
  runtime.skips_masked = false;
  runtime.blocks_in_messages = true;
  runtime.interleaves_evenly = true;
  return runtime;
}

TrainingRuntime megatron_core_runtime() {
  TrainingRuntime runtime = megatron_runtime();
  runtime.name = "megatron-core";
  runtime.keeps_scores = runtime.keeps_masks = runtime.blocks_in_messages = false;
  runtime.skips_masked = true;
  return runtime;
}

TrainingRuntime deepspeed_runtime() {
  TrainingRuntime runtime = megatron_runtime();
  runtime.name = "deepspeed";
  runtime.parameters = {2, 2, 12};
  runtime.splits_messages = runtime.hides_tensor_sums = false;
  // From the 1,536 and 2,240 GPUs of table 2 in arXiv:2104.04473, where gathers take the whole step: 16 GB/s a GPU.
  runtime.gather_share = 0.1;
  return runtime;
}

Result<TrainingRuntime> training_runtime(std::string_view name, Precision precision) {
  if (name == "tutti") return tutti_runtime(precision);
  if (name == "megatron") return megatron_runtime();
  if (name == "megatron-core") return megatron_core_runtime();
  if (name == "deepspeed") return deepspeed_runtime();
  const std::vector<std::string> known = {"tutti", "megatron", "megatron-core", "deepspeed"};
  return Error{.code = Code::kUsage,
               .detail = fmt::format("there is no runtime '{}'", name),
               .hint = did_you_mean(nearest(name, known), "expected one of " + join(known, ", "))};
}

std::string TrainingRuntime::refusal(const ParallelPlan& plan) const {
  const bool zero_bubble = plan.schedule == ScheduleKind::kZeroBubbleH1 || plan.schedule == ScheduleKind::kZeroBubbleV;
  if (name != "tutti") {
    if (plan.context > 1 && name != "megatron-core") return fmt::format("{} has no context parallelism", name);
    if (plan.recompute == Recomputation::kSelective && !keeps_scores)
      return "scores of attention are never kept, so none are recomputed";
    if (zero_bubble) return fmt::format("{} has no zero-bubble schedules", name);
    if (plan.schedule == ScheduleKind::kFillDrain) return fmt::format("{} runs 1F1B, never fill-drain", name);
    if (name == "deepspeed" && plan.chunks > 1) return "deepspeed has no interleaved schedule";
    if (name == "deepspeed" && plan.sequence_parallel) return "deepspeed has no sequence parallelism";
    if (name.starts_with("megatron") && plan.zero > ZeroStage::kOptimizer)
      return fmt::format("{} shards the optimizer state only", name);
    if (plan.pipeline > 1 && plan.zero > ZeroStage::kOptimizer)
      return "sharded gradients or weights do not go with a pipeline";
    if (plan.overlap_gradients) return fmt::format("{} averages gradients after the last backward", name);
    return {};
  }
  if (plan.recompute == Recomputation::kSelective) return "scores of attention are never kept, so none are recomputed";
  if (plan.zero == ZeroStage::kGradients) return "ZeRO-2 is in the library, but no option of pretrain_gpt";
  if (plan.zero == ZeroStage::kWeights) {
    if (plan.pipeline > 1) return "--fsdp gathers weights for one microbatch at a time, so there is no pipeline";
    if (plan.overlap_gradients) return "--fsdp averages while backward runs already";
  }
  if (plan.overlap_gradients && zero_bubble) return "zero-bubble schedules leave no backward that hides averages";
  if (plan.overlap_gradients && plan.zero == ZeroStage::kOptimizer && (plan.pipeline > 1 || plan.sequence_parallel))
    return "--overlap-grad-reduce with --use-distributed-optimizer needs one stage and no sequence parallelism";
  return {};
}

}  // namespace tutti
