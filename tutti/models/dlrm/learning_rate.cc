#include "tutti/models/dlrm/learning_rate.h"

#include <algorithm>

namespace tutti::dlrm {

double LearningRate::at(std::int64_t step) const {
  constexpr double kFloor = 1e-7;
  const auto warm = [&](std::int64_t s) { return base * (1 - double(warmup_steps - s) / double(warmup_steps)); };
  if (step < warmup_steps) return warm(step);
  if (decay_steps == 0) return base;
  // In between, dlrm_s_pytorch.py stays at the last rate of the warm-up, one step short of `base`. So do we.
  if (step < decay_start) return warmup_steps > 1 ? warm(warmup_steps - 1) : base;
  const auto done = std::min(step - decay_start, decay_steps - 1);
  const double left = double(decay_steps - done) / double(decay_steps);
  return std::max(kFloor, base * left * left);
}

}  // namespace tutti::dlrm
