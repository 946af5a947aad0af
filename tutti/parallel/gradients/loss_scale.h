#pragma once
// The factor of a loss that keeps its gradients within f16 (Micikevicius et al., 2018): numbers below 6e-8 become 0 in
// f16, those above 65504 infinite. A scale that is too large shows as an infinity. That step is skipped, and the scale
// falls. With hysteresis 1 this is torch.cuda.amp.GradScaler, with growth_factor 2 and backoff_factor 0.5 it is
// Megatron-LM's DynamicGradScaler, step by step.
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tutti {

struct LossScaleOptions {
  double initial = 65536;
  double least = 0;             // the scale does not fall below
  double growth_factor = 2;     // above 1
  double backoff_factor = 0.5;  // between 0 and 1
  std::int64_t window = 2000;   // steps without an infinity after which the scale grows
  std::int64_t hysteresis = 1;  // the infinity with this number makes the scale fall, and so does each further one
  bool is_fixed = false;        // the scale stays as it is, and no step is skipped
};

class LossScale {
 public:
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0;  // since it changed
    std::int64_t patience = 0;    // infinities until it falls
  };

  explicit LossScale(const LossScaleOptions& options)
      : options_(options), state_{.scale = options.initial, .patience = options.hysteresis} {}
  // Losses are multiplied by the scale in f32, and averages divided by it.
  static bool is_usable(double scale) {
    return float(scale) > 0 && std::isfinite(float(scale)) && std::isfinite(float(1 / scale));
  }

  double scale() const { return state_.scale; }
  // Whether a step with an infinity is skipped. If false, a smaller scale cannot help, and the step is an error.
  bool may_skip_step() const { return !options_.is_fixed && state_.scale > options_.least; }
  // Once a step.
  void update(bool finite) {
    if (options_.is_fixed) return;
    if (!finite) {
      state_.good_steps = 0;
      state_.patience = std::max<std::int64_t>(state_.patience - 1, 0);
      if (state_.patience == 0) state_.scale = std::max(state_.scale * options_.backoff_factor, options_.least);
    } else if (++state_.good_steps >= options_.window) {
      state_.good_steps = 0;
      state_.patience = options_.hysteresis;
      if (is_usable(state_.scale * options_.growth_factor)) state_.scale *= options_.growth_factor;
    }
  }

  const State& state() const { return state_; }
  // The state of a run before. A fixed scale stays.
  void load(const State& state) {
    if (!options_.is_fixed && is_usable(state.scale)) state_ = state;
  }

 private:
  LossScaleOptions options_;
  State state_;
};

}  // namespace tutti
