// A layer keeps, for each of its rows (tokens of a microbatch on a rank), numbers of `element` bytes unless noted:
//
//   inputs of both norms                       2 h in `residual` bytes   divided by sequence parallelism
//   inputs of both column-parallel products    2 h                       likewise
//   dropout of both outputs                    2 h bytes, where masks are kept; likewise
//   queries, keys, values                      qkv                       divided over the tensor ranks
//   input of the projection                    query                     likewise
//   input of the activation, and its output    fc1 + ffn                 likewise
//   scores, their softmax and dropout          heads x sequence x (2 numbers + 1 byte), where scores are kept
//
// In 16 bits, with h = query = key and ffn = fc1 = 4 h, these are the s b h (10 + 24 / t + 5 a s / (h t)) bytes of
// Korthikanti et al. 2022 (arXiv:2205.05198, table 2).
#include "tutti/planning/training/memory.h"

#include <algorithm>

namespace tutti::planning {
namespace {

double padded_vocabulary(const TransformerConfig& config, int tensor) {
  const double multiple = double(config.vocabulary_divisible_by) * tensor;
  const double rows = config.vocabulary;
  return double(std::int64_t((rows + multiple - 1) / multiple)) * multiple;
}

double rows_of(const TransformerConfig& config, const ParallelPlan& plan) {
  return double(config.sequence_length) / plan.context * plan.micro_batch;
}

// Divides what all tensor ranks have, unless sequence parallelism splits it by tokens.
double token_ranks(const ParallelPlan& plan) { return plan.sequence_parallel ? plan.tensor : 1; }

bool has_last_stage(const ParallelPlan& plan, int pipeline_rank) {
  return plan.schedule == ScheduleKind::kZeroBubbleV ? pipeline_rank == 0 : pipeline_rank == plan.pipeline - 1;
}

}  // namespace

ParameterBytes divided(const ParameterBytes& bytes, ZeroStage zero, int ranks) {
  ParameterBytes part = bytes;
  if (zero >= ZeroStage::kOptimizer) part.optimizer /= ranks;
  if (zero >= ZeroStage::kGradients) part.gradients /= ranks;
  if (zero >= ZeroStage::kWeights) part.weights /= ranks;
  return part;
}

double parameters_of_layer(const TransformerConfig& config, int tensor) {
  const double h = config.hidden, norms = (config.norm == NormKind::kLayerNorm ? 4 : 2) * h;
  const double matrices =
      h * (double(config.qkv_size()) + double(config.query_size()) + double(config.fc1_size()) + config.ffn);
  const double divided_biases =
      (config.has_qkv_bias() ? double(config.qkv_size()) : 0) + (config.bias ? double(config.fc1_size()) : 0);
  return (matrices + divided_biases) / tensor + norms + (config.bias ? 2 * h : 0);
}

int layers_of_rank(int layers, const ParallelPlan& plan, int pipeline_rank) {
  int sum = 0;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    const bool turned = plan.schedule == ScheduleKind::kZeroBubbleV && chunk == 1;
    const int stage = chunk * plan.pipeline + (turned ? plan.pipeline - 1 - pipeline_rank : pipeline_rank);
    sum += layers_of_stage(layers, plan.stages(), plan.ends, stage);
  }
  return sum;
}

double parameters_of_rank(const TransformerConfig& config, const ParallelPlan& plan, int pipeline_rank) {
  const double h = config.hidden, words = padded_vocabulary(config, plan.tensor) * h / plan.tensor;
  double sum = layers_of_rank(config.layers, plan, pipeline_rank) * parameters_of_layer(config, plan.tensor);
  const bool is_first = pipeline_rank == 0, is_last = has_last_stage(plan, pipeline_rank);
  if (is_first) sum += words + (config.position == PositionKind::kLearned ? double(config.positions) * h : 0);
  if (is_last) sum += (config.norm == NormKind::kLayerNorm ? 2 : 1) * h;
  if (is_last && !(config.tied && is_first)) sum += words;  // a tied embedding is on both ends
  return sum;
}

double activations_of_layer(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                            Recomputation recompute) {
  const double h = config.hidden, rows = rows_of(config, plan), t = plan.tensor;
  if (recompute == Recomputation::kFull) return rows * h * runtime.residual / token_ranks(plan);
  const double by_token = h * (2 * runtime.residual + 2 * runtime.element + (runtime.keeps_masks ? 2 : 0));
  const double by_head = runtime.element * (double(config.qkv_size()) + double(config.query_size()) +
                                            double(config.fc1_size()) + config.ffn);
  double scores = 0;
  if (runtime.keeps_scores && recompute == Recomputation::kNone)
    scores = double(config.heads) * config.sequence_length * (2 * runtime.element + (runtime.keeps_masks ? 1 : 0));
  return rows * (by_token / token_ranks(plan) + (by_head + scores) / t);
}

int chunks_in_flight(const ParallelPlan& plan, int microbatches, int pipeline_rank) {
  const int p = plan.pipeline, v = plan.chunks, all = microbatches * v;
  switch (plan.schedule) {
    case ScheduleKind::kFillDrain:
      return all;
    case ScheduleKind::kInterleaved: {
      const int groups = std::max(microbatches / p, 1), group = (microbatches + groups - 1) / groups;  // the first one
      return std::min(all, (v - 1) * group + 2 * (p - pipeline_rank - 1) + 1);
    }
    case ScheduleKind::kOneForwardOneBackward:
      return std::min(all, p - pipeline_rank);
    case ScheduleKind::kZeroBubbleH1:  // rank r puts off the gradients of weights by r microbatches
      return std::min(all, p);
    case ScheduleKind::kZeroBubbleV:
      return std::min(all, 2 * p);
  }
  return all;
}

double activations_of_head(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime) {
  const double hidden = double(config.hidden) / token_ranks(plan);
  return rows_of(config, plan) * ((runtime.residual + runtime.element) * hidden +
                                  runtime.logit * padded_vocabulary(config, plan.tensor) / plan.tensor);
}

RankMemory memory_of_rank(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                          int microbatches, int pipeline_rank) {
  const double parameters = parameters_of_rank(config, plan, pipeline_rank), rows = rows_of(config, plan);
  const ParameterBytes each = divided(runtime.parameters, plan.zero, plan.replicas());
  RankMemory memory{.weights = parameters * each.weights,
                    .gradients = parameters * each.gradients,
                    .optimizer = parameters * each.optimizer};

  const int layers = layers_of_rank(config.layers, plan, pipeline_rank);
  const double of_chunk = double(layers) / plan.chunks;
  double recomputed = 0;
  if (plan.recompute == Recomputation::kFull)
    recomputed = plan.recomputed_layers == 0 ? of_chunk : std::min(of_chunk, double(plan.recomputed_layers));
  const Recomputation others =
      plan.recompute == Recomputation::kFull ? Recomputation::kNone : plan.recompute;  // of the layers that are kept
  const double whole = activations_of_layer(config, plan, runtime, others);
  const double chunk =
      recomputed * activations_of_layer(config, plan, runtime, Recomputation::kFull) + (of_chunk - recomputed) * whole;
  memory.activations = chunk * chunks_in_flight(plan, microbatches, pipeline_rank);

  // Gradients of the residual and of the widest activation of a layer, and what is recomputed for one layer.
  memory.working = rows * (2 * runtime.residual * config.hidden / token_ranks(plan) +
                           runtime.element * double(config.fc1_size()) / plan.tensor);
  if (recomputed > 0) memory.working += whole;
  if (plan.recompute == Recomputation::kSelective)
    memory.working += activations_of_layer(config, plan, runtime, Recomputation::kNone) - whole;
  if (has_last_stage(plan, pipeline_rank)) {
    const double head = activations_of_head(config, plan, runtime);
    memory.head = head * (plan.schedule == ScheduleKind::kFillDrain ? microbatches : 1);
    memory.working =
        std::max(memory.working, rows * runtime.logit_at_work * padded_vocabulary(config, plan.tensor) / plan.tensor);
  }

  memory.buffers = runtime.reserved;
  // Both directions of a pipeline, sent and received.
  if (plan.pipeline > 1) memory.buffers += 4 * rows * config.hidden * runtime.residual / token_ranks(plan);
  if (plan.zero == ZeroStage::kWeights && plan.replicas() > 1)
    memory.buffers += parameters_of_layer(config, plan.tensor) *
                      (std::min<double>(runtime.whole_weights, layers) * runtime.parameters.weights +
                       std::min<double>(runtime.whole_gradients, layers + 2) * runtime.parameters.gradients);
  // Keys and values, and their gradients: the pairs at work have a place in `working`, and those that pass do not.
  if (plan.context > 1)
    memory.buffers +=
        runtime.passing_pairs * rows * runtime.element * double(config.qkv_size() - config.query_size()) / plan.tensor;
  // A sharded optimizer averages bucket by bucket, and keeps the averages of its part beside the gradients, whose
  // memory is not given to them. Gradients of the only microbatch are freed with their bucket.
  if (plan.overlap_gradients && plan.replicas() > 1)
    memory.buffers += plan.zero == ZeroStage::kNone ? std::min(runtime.buckets, parameters * runtime.sent_gradient)
                                                    : parameters * runtime.sent_gradient / plan.replicas();
  if (plan.overlap_gradients && plan.replicas() > 1 && plan.zero == ZeroStage::kOptimizer && microbatches == 1 &&
      runtime.buckets > 0)
    memory.gradients = std::min(memory.gradients, runtime.buckets);
  return memory;
}

int fullest_rank(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                 int microbatches) {
  const int last = plan.pipeline - 1;
  if (last == 0) return 0;
  const auto total = [&](int rank) { return memory_of_rank(config, plan, runtime, microbatches, rank).total(); };
  int fullest = total(0) >= total(last) ? 0 : last;
  for (int rank = 1; !plan.ends.is_even() && rank < last; ++rank)
    if (total(rank) > total(fullest)) fullest = rank;
  return fullest;
}

}  // namespace tutti::planning
