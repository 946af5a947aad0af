#pragma once
// What a loss is multiplied by so that f16 holds the gradients (Micikevicius et al., 2018): numbers below 6e-8 become
// 0 in f16, those above 65504 infinite. A scale that is too large shows as an infinity, which leaves the step out. As
// Megatron-LM has it (megatron/core/optimizer/grad_scaler.py), step by step.
#include <cstdint>

#include "tutti/base/error.h"

namespace tutti {

struct LossScaleOptions {
  double fixed = 0;  // stays so, and leaves no step out; 0: the rest decides
  double initial = 4294967296.0, least = 1;
  std::int64_t window = 1000;   // steps without an infinity after which it doubles
  std::int64_t hysteresis = 2;  // so many infinities pass before each further one halves it
};
// kInvalidArgument names the option and what it may be.
Status check(const LossScaleOptions& options);

class LossScale {
 public:
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0;  // since it changed
    std::int64_t patience = 0;    // infinities that it still bears
  };

  explicit LossScale(const LossScaleOptions& options);
  double scale() const { return state_.scale; }
  // Whether a step whose gradients are not finite is left out, and not the end: a smaller scale may be right.
  bool may_leave_out() const { return options_.fixed == 0 && state_.scale > options_.least; }
  // Once a step.
  void update(bool finite);

  const State& state() const { return state_; }
  // Of a run before; a fixed scale stays.
  void load(const State& state);

 private:
  const LossScaleOptions options_;
  State state_;
};

}  // namespace tutti
