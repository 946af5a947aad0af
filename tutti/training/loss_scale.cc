#include "tutti/training/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

bool usable(double scale) { return scale > 0 && std::isfinite(float(scale)); }

}  // namespace

Status check(const LossScaleOptions& options) {
  const auto within_f32 = [](const char* option, double value) -> Status {
    if (usable(value)) return {};
    return invalid_argument(fmt::format("{} is {}; expected a positive number within f32", option, value));
  };
  if (options.fixed != 0) return within_f32("--loss-scale", options.fixed);
  TUTTI_TRY(within_f32("--initial-loss-scale", options.initial));
  TUTTI_TRY(within_f32("--min-loss-scale", options.least));
  if (options.least > options.initial)
    return invalid_argument(
        fmt::format("--min-loss-scale {} is more than --initial-loss-scale {}", options.least, options.initial));
  if (options.window < 1)
    return invalid_argument(fmt::format("--loss-scale-window is {}; expected at least one step", options.window));
  if (options.hysteresis < 1)
    return invalid_argument(fmt::format("--hysteresis is {}; expected at least one step", options.hysteresis));
  return {};
}

LossScale::LossScale(const LossScaleOptions& options) : options_(options) {
  check(options).or_throw();
  const double scale = options.fixed != 0 ? options.fixed : options.initial;
  state_ = {.scale = scale, .good_steps = 0, .patience = options.hysteresis};
}

void LossScale::update(bool finite) {
  if (options_.fixed != 0) return;
  if (!finite) {
    state_.good_steps = 0;
    state_.patience = std::max<std::int64_t>(state_.patience - 1, 0);
    if (state_.patience == 0) state_.scale = std::max(state_.scale / 2, options_.least);
    return;
  }
  if (++state_.good_steps < options_.window) return;
  state_.good_steps = 0;
  state_.patience = options_.hysteresis;
  if (usable(2 * state_.scale)) state_.scale *= 2;
}

void LossScale::load(const State& state) {
  if (options_.fixed == 0 && usable(state.scale)) state_ = state;
}

}  // namespace tutti
