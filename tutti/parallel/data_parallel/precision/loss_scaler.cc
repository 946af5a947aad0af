#include "tutti/parallel/data_parallel/precision/loss_scaler.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/parallel/optim/sharded_optimizer.h"

namespace tutti {
namespace {

// Losses are multiplied by it in f32, and averages divided by it.
bool usable(double scale) { return float(scale) > 0 && std::isfinite(float(scale)) && std::isfinite(float(1 / scale)); }

[[noreturn]] void reject_useless_scale(const Reducer& reducer, double scale) {
  const auto found = reducer.non_finite();
  throw Exception(Error{
      .code = Code::kAborted,
      .detail = fmt::format("LossScaler: the scale has fallen to {}, and a gradient is still not finite{}", scale,
                            found ? ": that of " + found->parameter : ""),
      .hint =
          "no scale helps where the loss or a weight is a NaN: lower the learning rate, clip, or look at the samples",
      .group = reducer.group().name(),
      .rank = reducer.group().rank()});
}

}  // namespace

LossScaler::LossScaler(Reducer& reducer, LossScalerOptions options) : reducer_(reducer), options_(options) {
  TUTTI_REQUIRE(usable(options.initial_scale), "LossScaler: initial_scale is ", options.initial_scale,
                "; expected a positive number within f32");
  TUTTI_REQUIRE(options.growth_factor > 1, "LossScaler: growth_factor is ", options.growth_factor,
                "; expected more than 1");
  TUTTI_REQUIRE(options.backoff_factor > 0 && options.backoff_factor < 1, "LossScaler: backoff_factor is ",
                options.backoff_factor, "; expected a number between 0 and 1");
  TUTTI_REQUIRE(options.growth_interval > 0, "LossScaler: growth_interval is ", options.growth_interval,
                "; expected at least one step");
  reducer_.require_what_a_scaler_needs();
  reducer_.set_after_join_step([this] { update(); });
  load({.scale = options.initial_scale});
}

LossScaler::~LossScaler() {
  reducer_.set_gradient_scale(1);
  reducer_.set_after_join_step(nullptr);
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const { return loss.mul(state_.scale); }

bool LossScaler::step(ShardedOptimizer& optimizer) {
  optimizer.step();
  return !reducer_.skips_step();
}

void LossScaler::update() {
  State next{.scale = state_.scale};
  if (reducer_.skips_step()) {
    next.scale *= options_.backoff_factor;
    if (!usable(next.scale)) reject_useless_scale(reducer_, state_.scale);
  } else {
    next.good_steps = state_.good_steps + 1;
    if (next.good_steps == options_.growth_interval) {
      next.good_steps = 0;
      if (usable(next.scale * options_.growth_factor)) next.scale *= options_.growth_factor;
    }
  }
  load(next);
}

void LossScaler::state(StateDict& state) {
  state.optional_value("loss_scale", state_.scale);
  state.optional_value("loss_scale_good_steps", state_.good_steps);
  if (state.loading()) state.after_load([this](const CheckpointReader&) { return load(state_), Status(); });
}

void LossScaler::load(const State& state) {
  TUTTI_REQUIRE(usable(state.scale), "LossScaler: the scale is ", state.scale,
                "; expected a positive number that f32 has, and whose inverse it has: what state() gave");
  state_ = state;
  reducer_.set_gradient_scale(state.scale);
}

}  // namespace tutti
