// Who has which gradient at the end of backward, and what makes it that of the whole model: a rank has its part of the
// weights (tensor, pipeline), of its part of the samples (data) and of the tokens (context). So: where sequence
// parallelism made a tensor rank see its rows only, a sum over tensor ranks; where the first and the last stage share a
// weight, a sum over both; and an average over data and context ranks, of which a sharded optimizer takes to each rank
// the part that it steps. These go over different groups and may come in any order; the average is the last, because
// a sharded one leaves no whole gradient to be summed, unless it overlaps with backward and so comes first.
#include "tutti/models/gpt/grid_step.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "tutti/comm/collectives.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/parallel/pipeline/tied_weights.h"
#include "tutti/parallel/tensor/partial_gradients.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/device_region.h"
#include "tutti/training/leveled_timers.h"

namespace tutti::gpt {
namespace {

UpdateRule rule_of(const Options& options, double weight_decay) {
  const auto& o = options.optimizer;
  const double lr = o.learning_rate.most;
  if (!o.adam) return SgdOptions{.lr = lr, .momentum = o.momentum, .weight_decay = weight_decay};
  return AdamWOptions{.lr = lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.epsilon, .weight_decay = weight_decay};
}

// Biases and norms are not decayed, as in Megatron-LM.
bool is_decayed(const at::Tensor& parameter) { return parameter.dim() > 1; }

}  // namespace

GridStep::GridStep(const Parallel& groups, const Options& options, std::shared_ptr<Transformer> model)
    : groups_(groups),
      options_(options),
      model_(std::move(model)),
      parameters_(placed_parameters(*model_)),
      rule_(rule_of(options, options.optimizer.weight_decay.end)) {
  for (const auto& parameter : parameters_) {
    const bool is_copy = model_->tied_weight_is_copy() && parameter.tensor.is_same(model_->tied_weight());
    stepped_.push_back({parameter.name, parameter.tensor});
    elsewhere_.push_back(is_copy || !(parameter.layout.divided() || groups_.tensor.rank() == 0));
  }
  if (const at::Tensor tied = model_->tied_weight(); tied.defined()) tie_weight(groups.embedding, tied);
  ParameterGroup not_decayed{.names = {}, .rule = rule_of(options, 0)};
  for (const auto& parameter : parameters_)
    if (!is_decayed(parameter.tensor)) not_decayed.names.push_back(parameter.name);
  if (options.parallel.fully_shard) {
    make_fully_sharded(not_decayed);
  } else if (options.parallel.shard_optimizer) {
    make_sharded_optimizer(not_decayed);
  } else {
    if (options.parallel.overlap_gradients) make_overlapped_averages();
    for (const auto& parameter : parameters_)
      if (overlapped_.empty() || !model_->chunk_of(parameter.name)) averaged_at_end_.push_back(parameter.tensor);
    whole_ = std::make_unique<Optimizer>(*model_, rule_, std::vector<ParameterGroup>{not_decayed});
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].layout.partial_gradient && stepped_[i].tensor.numel() > 0)
      partial_.push_back(stepped_[i].tensor);
}

GridStep::~GridStep() = default;

void GridStep::make_fully_sharded(const ParameterGroup& not_decayed) {
  fully_sharded_ = std::make_unique<FullySharded<Transformer>>(model_, groups_.averaging,
                                                               FullyShardedOptions{.blocks = {"decoder.layers.*"},
                                                                                   .finite_check = FiniteCheck::kReport,
                                                                                   .heap_tensors = false,
                                                                                   .unshard_at_end = false});
  const auto shards = fully_sharded_->named_parameters();
  for (NamedTensor& stepped : stepped_)
    stepped =
        *std::find_if(shards.begin(), shards.end(), [&](const auto& shard) { return shard.name == stepped.name; });
  whole_ = std::make_unique<Optimizer>(shards, rule_, std::vector<ParameterGroup>{not_decayed});
}

at::Tensor GridStep::forward(int chunk, const MicroBatch& batch, const at::Tensor& input) {
  return fully_sharded_ ? fully_sharded_->forward(chunk, batch, input) : model_->forward(chunk, batch, input);
}

void GridStep::run_forward(const std::function<void()>& act) {
  fully_sharded_ ? fully_sharded_->forward_by(act) : act();
}

// Stage 2 averages while backward runs, stage 1 at the end. NaN and infinity are seen by the norm, which every step
// asks for: no Reducer has to look for them.
void GridStep::make_sharded_optimizer(const ParameterGroup& not_decayed) {
  ShardedOptimizerOptions made{.stage = options_.parallel.overlap_gradients ? 2 : 1, .groups = {not_decayed}};
  if (groups_.model.size() > 1) made.model = groups_.model;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (elsewhere_[i]) made.counted_elsewhere.push_back(parameters_[i].name);
  for_sharded_ = std::make_unique<Reducer>(
      model_, groups_.averaging, DataParallelOptions{.overlap = Overlap::kOff, .finite_check = FiniteCheck::kOff});
  for_sharded_->set_sync(false);
  sharded_ = std::make_unique<ShardedOptimizer>(*for_sharded_, rule_, made);
}

// A chunk's gradients are complete when its last backward has run, and other chunks of this rank may go on for long: so
// each has a Reducer, which takes no notice of the others' parameters. Those of all ranks that average with one another
// begin their calls in the same order, because they run the same schedule.
void GridStep::make_overlapped_averages() {
  for (int chunk = 0; chunk < options_.parallel.chunks; ++chunk) {
    DataParallelOptions made{.overlap = Overlap::kOn, .finite_check = FiniteCheck::kOff};
    for (const auto& parameter : parameters_)
      if (model_->chunk_of(parameter.name) != chunk) made.params_and_buffers_to_ignore.push_back(parameter.name);
    const bool has_some = made.params_and_buffers_to_ignore.size() < parameters_.size();
    auto& reducer = overlapped_.emplace_back();
    if (!has_some) continue;
    reducer = std::make_unique<Reducer>(model_, groups_.averaging, made);
    reducer->set_sync(false);
  }
}

void GridStep::zero_grad() {
  if (sharded_) {
    sharded_->zero_grad();
    return for_sharded_->set_sync(false);
  }
  whole_->zero_grad();
  if (fully_sharded_) fully_sharded_->zero_grad();
}

void GridStep::before_last_backward(int chunk) {
  if (!options_.parallel.overlap_gradients) return;
  const auto& reducer = sharded_ ? for_sharded_ : overlapped_[std::size_t(chunk)];
  if (reducer) reducer->set_sync(true);
}

double GridStep::sum_over_model(double mine) const {
  return groups_.model.size() > 1 ? all_reduce(groups_.model, mine, ReduceOp::kSum) : mine;
}

double GridStep::sum_over_shards(double mine) const {
  return fully_sharded_ && groups_.averaging.size() > 1 ? all_reduce(groups_.averaging, mine, ReduceOp::kSum) : mine;
}

void GridStep::sum_parts_of_gradients(LeveledTimers& timers) {
  for (const auto& reducer : overlapped_) {
    if (!reducer) continue;
    const auto timing = timers.time("all-grads-sync", 1);
    reducer->finish();
    reducer->set_sync(false);
  }
  if (!partial_.empty()) {
    const auto timing = timers.time("layernorm-grads-all-reduce", 1);
    sum_over_tensor_group(groups_.tensor, partial_);
  }
  if (const at::Tensor tied = model_->tied_weight(); tied.defined()) {
    const auto timing = timers.time("embedding-grads-all-reduce", 1);
    sum_tied_gradients(groups_.embedding, tied);
  }
}

void GridStep::average() {
  if (groups_.averaging.size() == 1 || averaged_at_end_.empty()) return;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : averaged_at_end_) {
    at::Tensor& gradient = parameter.mutable_grad();
    gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(parameter);
    gradients.push_back(gradient);
  }
  const at::NoGradGuard no_grad;
  all_reduce_coalesced(groups_.averaging, gradients, ReduceOp::kAvg);
}

void GridStep::throw_non_finite(const std::string& sentence, const StepScale& scale) const {
  throw Exception(Error{.code = Code::kNonFinite,
                        .detail = sentence,
                        .hint = scale.loss_scale > 1
                                    ? "a smaller learning rate or a longer warm-up may help, or a smaller loss scale"
                                    : "a smaller learning rate, a longer warm-up or --clip-grad may help",
                        .group = groups_.world.name(),
                        .rank = groups_.world.rank()});
}

double GridStep::count_zeros() const {
  std::vector<at::Tensor> counts;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = stepped_[i].tensor.grad();
    if (elsewhere_[i] || !gradient.defined()) continue;
    if (fully_sharded_) {
      counts.push_back(gradient.eq(0).sum());
      continue;
    }
    for (const auto& [box, piece] : pieces(parameters_[i].layout, gradient)) counts.push_back(piece.eq(0).sum());
  }
  double zeros = 0;
  for (const double count : values_of(counts)) zeros += count;
  return zeros;
}

// With --fsdp the averaging ranks have other elements each, and otherwise the same averages.
GradientNorm GridStep::gradient_norm() const {
  const Group& group = groups_.averaging;
  const bool is_divided = groups_.model.size() > 1;
  GradientFindings findings = gradient_findings(stepped_, elsewhere_);
  if (!fully_sharded_) std::swap(findings.squares, findings.tail_squares);
  const auto found = fully_sharded_ ? fully_sharded_->non_finite() : std::nullopt;  // then `.grad` has no averages
  if (found) {
    findings.note({0, NonFinite::kUnknownRank});
    findings.squares.value = findings.squares.scaled = std::numeric_limits<double>::quiet_NaN();
  }
  GradientNorm norm = norm_over_ranks(group, is_divided ? groups_.model : Group(), findings,
                                      [&](std::size_t i) -> const std::string& { return stepped_[i].name; });
  if (found) norm.non_finite = non_finite_gradient(found->parameter, found->rank);
  // Replicas sum the same numbers, but one whose ranks meet in another way adds them in another order: of the last bits
  // one is taken, or replicas would drift apart.
  if (norm.finite() && is_divided && group.size() > 1) norm.norm = all_reduce(group, norm.norm, ReduceOp::kMax);
  return norm;
}

StepOutcome GridStep::clip(const StepScale& scale) {
  const GradientNorm norm = gradient_norm();
  StepOutcome outcome{.gradient_norm = norm.norm / scale.loss_scale, .skipped = !norm.finite()};
  if (outcome.skipped) {
    if (!scale.skips_infinity) throw_non_finite(norm.non_finite, scale);
    return outcome;
  }
  if (options_.report.zero_gradients) {
    outcome.zero_gradients =
        std::int64_t(sum_over_model(sum_over_shards(count_zeros()))) - (fully_sharded_ ? padding_elements() : 0);
  }
  const double limit = options_.optimizer.clip_grad;
  whole_->scale_gradients((limit > 0 ? clip_factor(outcome.gradient_norm, limit) : 1) / scale.loss_scale);
  return outcome;
}

// Rows that only fill a vocabulary up never have a gradient.
std::int64_t GridStep::padding_elements() const {
  double padding = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& parameter = parameters_[i];
    if (elsewhere_[i]) continue;
    padding += double(parameter.tensor.numel());
    for (const auto& [box, piece] : pieces(parameter.layout, parameter.tensor)) padding -= double(piece.numel());
  }
  return std::int64_t(sum_over_model(padding));
}

StepOutcome GridStep::clip_sharded(const StepScale& scale) {
  const double limit = options_.optimizer.clip_grad;
  const GradientNorm norm = sharded_->clip_grad_norm(limit > 0 ? limit : std::numeric_limits<double>::max());
  StepOutcome outcome{.gradient_norm = norm.norm, .skipped = !norm.finite()};
  if (outcome.skipped && !scale.skips_infinity) throw_non_finite(norm.non_finite, scale);
  if (options_.report.zero_gradients && !outcome.skipped)
    outcome.zero_gradients = sharded_->zero_averages() - padding_elements();
  return outcome;
}

StepOutcome GridStep::finish(double learning_rate, double weight_decay, LeveledTimers& timers, const StepScale& scale) {
  if (fully_sharded_) {
    const auto timing = timers.time("all-grads-sync", 1);
    fully_sharded_->finish();
  }
  sum_parts_of_gradients(timers);
  if (sharded_) {
    for_sharded_->set_gradient_scale(scale.loss_scale);
    if (!options_.parallel.overlap_gradients) for_sharded_->take_gradients();
  } else if (!fully_sharded_) {
    const auto timing = timers.time("all-grads-sync", 1);
    average();
  }
  const auto timing = timers.time("optimizer", 1);
  const DeviceRegion region("optimizer", model_->device());
  const StepOutcome outcome = sharded_ ? clip_sharded(scale) : clip(scale);
  if (outcome.skipped) {
    zero_grad();
    return outcome;
  }
  const auto step = [&](auto& optimizer) {
    optimizer.set_lr(learning_rate);
    optimizer.set_weight_decay(weight_decay);
    optimizer.step();
  };
  if (sharded_) {
    step(*sharded_);
    for_sharded_->set_sync(false);
  } else {
    step(*whole_);
  }
  return outcome;
}

double GridStep::parameter_norm() const {
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!elsewhere_[i]) weights.push_back(stepped_[i].tensor.detach().contiguous());
  double squares = 0;
  for (const SumOfSquares& of_one : squares_of(weights)) squares += of_one.value;
  return std::sqrt(sum_over_model(sum_over_shards(squares)));
}

std::vector<StatePart> GridStep::own_state() { return sharded_ ? sharded_->own_state() : whole_->own_state(); }

}  // namespace tutti::gpt
