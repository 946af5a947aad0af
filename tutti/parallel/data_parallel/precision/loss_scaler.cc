#include "tutti/parallel/data_parallel/precision/loss_scaler.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "tutti/base/error.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/sharded_optimizer.h"

namespace tutti {
namespace {

LossScaleOptions checked(const LossScalerOptions& options) {
  TUTTI_REQUIRE(LossScale::is_usable(options.initial_scale), "LossScaler: initial_scale is ", options.initial_scale,
                "; expected a positive number within f32");
  TUTTI_REQUIRE(options.growth_factor > 1, "LossScaler: growth_factor is ", options.growth_factor,
                "; expected more than 1");
  TUTTI_REQUIRE(options.backoff_factor > 0 && options.backoff_factor < 1, "LossScaler: backoff_factor is ",
                options.backoff_factor, "; expected a number between 0 and 1");
  TUTTI_REQUIRE(options.growth_interval > 0, "LossScaler: growth_interval is ", options.growth_interval,
                "; expected at least one step");
  return {.initial = options.initial_scale,
          .growth_factor = options.growth_factor,
          .backoff_factor = options.backoff_factor,
          .window = options.growth_interval};
}

}  // namespace

LossScaler::LossScaler(Reducer& reducer, LossScalerOptions options) : reducer_(&reducer), scale_(checked(options)) {
  reducer.require_what_a_scaler_needs();
  reducer.set_after_join_step([this] { update(); });
  set_gradient_scale(scale());
}

LossScaler::LossScaler(ShardedModule& sharded, LossScalerOptions options)
    : sharded_(&sharded), scale_(checked(options)) {
  TUTTI_REQUIRE(sharded.finite_check() == FiniteCheck::kReport,
                "LossScaler: FullyShardedOptions::finite_check has to be kReport, so that a step with an infinity is "
                "skipped");
  set_gradient_scale(scale());
}

bool LossScaler::skips_step() const { return reducer_ ? reducer_->skips_step() : sharded_->non_finite().has_value(); }

void LossScaler::reject_useless_scale(double scale) const {
  const auto found = reducer_ ? reducer_->non_finite() : sharded_->non_finite();
  const Group& group = reducer_ ? reducer_->group() : sharded_->group();
  throw Exception(Error{
      .code = Code::kNonFinite,
      .detail = fmt::format("LossScaler: the scale has fallen to {}, and a gradient is still not finite{}", scale,
                            found ? ": that of " + found->parameter : ""),
      .hint =
          "no scale helps where the loss or a weight is a NaN: lower the learning rate, clip, or look at the samples",
      .group = group.name(),
      .rank = group.rank()});
}

LossScaler::~LossScaler() {
  set_gradient_scale(1);
  if (reducer_) reducer_->set_after_join_step(nullptr);
}

void LossScaler::set_gradient_scale(double scale) {
  if (sharded_)
    sharded_->set_gradient_scale(scale);
  else
    reducer_->set_gradient_scale(scale);
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const { return loss.mul(scale()); }

bool LossScaler::step(ShardedOptimizer& optimizer) {
  optimizer.step();
  return !skips_step();
}

void LossScaler::update() {
  LossScale next = scale_;
  next.update(!skips_step());
  if (!LossScale::is_usable(next.scale())) reject_useless_scale(scale());
  scale_ = next;
  set_gradient_scale(scale());
}

void LossScaler::state(StateDict& state) {
  saved_ = scale_.state();
  state.optional_value("loss_scale", saved_.scale);
  state.optional_value("loss_scale_good_steps", saved_.good_steps);
  if (state.loading()) state.after_load([this](const CheckpointReader&) { return load(saved_), Status(); });
}

void LossScaler::load(const State& state) {
  TUTTI_REQUIRE(LossScale::is_usable(state.scale), "LossScaler: the scale is ", state.scale,
                "; expected a positive number that f32 has, and whose inverse it has: what state() gave");
  scale_.load(state);
  set_gradient_scale(scale());
}

}  // namespace tutti
