// Who has which gradient at the end of backward, and what makes it that of the whole model: a rank has its part of the
// weights (tensor, pipeline), of its part of the samples (data) and of the tokens (context). So: an average over data
// and context ranks; where sequence parallelism made a tensor rank see its rows only, a sum over tensor ranks; where
// the first and the last stage share a weight, a sum over both. These three go over different groups and may come in
// any order.
#include "tutti/models/gpt/weights_step.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "tutti/comm/collectives.h"
#include "tutti/models/gpt/leveled_timers.h"
#include "tutti/parallel/optim/clip.h"
#include "tutti/parallel/pipeline/tied_weights.h"
#include "tutti/parallel/tensor/partial_gradients.h"
#include "tutti/tensor/collectives.h"

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

double squares_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return sum_of_squares_of(dense.data_ptr(), std::size_t(dense.numel()), dense.scalar_type() == at::kDouble);
}

DataParallelOptions reducer_options(const Options& options) {
  DataParallelOptions made;
  made.overlap = options.parallel.overlap_gradients ? Overlap::kOn : Overlap::kOff;
  return made;
}

}  // namespace

WeightsStep::WeightsStep(const GridGroups& groups, const Options& options, std::shared_ptr<Model> model)
    : groups_(groups),
      options_(options),
      model_(std::move(model)),
      parameters_(placed_parameters(*model_)),
      partial_(with_partial_gradients(parameters_)),
      rule_(rule_of(options, options.optimizer.weight_decay.end)),
      decays_apart_(options.optimizer.weight_decay.start != options.optimizer.weight_decay.end) {
  if (const at::Tensor tied = model_->tied_weight(); tied.defined()) tie_weight(groups.embedding, tied);
  const auto& parallel = options.parallel;
  if (parallel.shard_optimizer || parallel.overlap_gradients) {
    reducer_ = std::make_unique<Reducer>(model_, groups.averaging, reducer_options(options));
    reducer_->set_sync(false);
  }
  ParameterGroup not_decayed{.names = {}, .rule = rule_of(options, 0)};
  for (const auto& parameter : parameters_)
    if (!is_decayed(parameter.tensor)) not_decayed.names.push_back(parameter.name);
  const UpdateRule rule = rule_of(options, decays_apart_ ? 0 : options.optimizer.weight_decay.end);
  if (parallel.shard_optimizer) {
    sharded_ = std::make_unique<ShardedOptimizer>(*reducer_, rule, ShardedOptimizerOptions{.groups = {not_decayed}});
  } else {
    whole_ = std::make_unique<Optimizer>(*model_, rule, std::vector<ParameterGroup>{not_decayed});
  }
}

WeightsStep::~WeightsStep() = default;

void WeightsStep::zero_grad() {
  if (sharded_) return sharded_->zero_grad();
  if (reducer_) return reducer_->zero_grad();
  whole_->zero_grad();
}

void WeightsStep::before_last_backward() {
  if (reducer_) reducer_->set_sync(true);
}

bool WeightsStep::counts(const PlacedParameter& parameter) const {
  if (model_->tied_weight_is_copy() && parameter.tensor.is_same(model_->tied_weight())) return false;
  return parameter.layout.divided() || groups_.tensor.rank() == 0;
}

double WeightsStep::norm_over_model(double squares) const {
  if (groups_.model.size() > 1) squares = all_reduce(groups_.model, squares, ReduceOp::kSum);
  return std::sqrt(squares);
}

void WeightsStep::average(LeveledTimers& timers) {
  const auto timing = timers.time("all-grads-sync", 1);
  if (reducer_ && !sharded_) {
    reducer_->finish();
    reducer_->set_sync(false);
  } else if (!reducer_ && groups_.averaging.size() > 1) {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters_) {
      at::Tensor& gradient = parameter.tensor.mutable_grad();
      gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(parameter.tensor);
      gradients.push_back(gradient);
    }
    const at::NoGradGuard no_grad;
    all_reduce_coalesced(groups_.averaging, gradients, ReduceOp::kAvg);
  }
  sum_over_tensor_group(groups_.tensor, partial_);
  if (const at::Tensor tied = model_->tied_weight(); tied.defined()) sum_tied_gradients(groups_.embedding, tied);
}

StepOutcome WeightsStep::clip() {
  StepOutcome outcome;
  double squares = 0, zeros = 0;
  std::string culprit;
  for (const auto& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined() || !counts(parameter)) continue;
    const double mine = squares_of(gradient);
    if (!std::isfinite(mine) && culprit.empty()) culprit = parameter.name;
    squares += mine;
    if (!options_.report.zero_gradients) continue;
    for (const auto& [box, piece] : pieces(parameter.layout, gradient))
      zeros += double(piece.eq(0).sum().item<std::int64_t>());
  }
  outcome.gradient_norm = norm_over_model(squares);
  if (!std::isfinite(outcome.gradient_norm))
    throw Exception(Error{.code = Code::kAborted,
                          .detail = culprit.empty() ? "a gradient of another rank has a NaN or an infinity"
                                                    : non_finite_gradient(culprit, groups_.world.rank()),
                          .hint = "a smaller learning rate, a longer warm-up or --clip-grad may help",
                          .group = groups_.world.name(),
                          .rank = groups_.world.rank()});
  if (options_.report.zero_gradients)
    outcome.zero_gradients =
        std::int64_t(groups_.model.size() > 1 ? all_reduce(groups_.model, zeros, ReduceOp::kSum) : zeros);
  const double limit = options_.optimizer.clip_grad;
  const double factor = limit > 0 ? clip_factor(outcome.gradient_norm, limit) : 1;
  if (factor >= 1) return outcome;
  for (const auto& parameter : parameters_)
    if (at::Tensor& gradient = parameter.tensor.mutable_grad(); gradient.defined()) gradient.mul_(factor);
  return outcome;
}

void WeightsStep::decay(double learning_rate, double weight_decay) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    if (!is_decayed(parameter.tensor)) continue;
    at::Tensor weight = parameter.tensor;
    if (options_.optimizer.adam) {
      weight.mul_(1 - learning_rate * weight_decay);
    } else if (at::Tensor& gradient = parameter.tensor.mutable_grad(); gradient.defined()) {
      gradient.add_(weight, weight_decay);
    }
  }
}

StepOutcome WeightsStep::finish(double learning_rate, double weight_decay, LeveledTimers& timers) {
  if (sharded_) {
    const auto timing = timers.time("optimizer", 1);
    const double limit = options_.optimizer.clip_grad;
    const GradientNorm norm = sharded_->clip_grad_norm(limit > 0 ? limit : std::numeric_limits<double>::max());
    if (!norm.finite())
      throw Exception(Error{.code = Code::kAborted,
                            .detail = norm.non_finite,
                            .hint = "a smaller learning rate, a longer warm-up or --clip-grad may help",
                            .group = groups_.world.name(),
                            .rank = groups_.world.rank()});
    sharded_->set_lr(learning_rate);
    sharded_->step();
    reducer_->set_sync(false);
    return {.gradient_norm = norm.norm};
  }
  average(timers);
  const auto timing = timers.time("optimizer", 1);
  const StepOutcome outcome = clip();
  if (decays_apart_) decay(learning_rate, weight_decay);
  whole_->set_lr(learning_rate);
  whole_->step();
  return outcome;
}

double WeightsStep::parameter_norm() const {
  double squares = 0;
  for (const auto& parameter : parameters_)
    if (counts(parameter)) squares += squares_of(parameter.tensor.detach());
  return norm_over_model(squares);
}

std::vector<StatePart> WeightsStep::own_state() { return sharded_ ? sharded_->own_state() : whole_->own_state(); }

}  // namespace tutti::gpt
