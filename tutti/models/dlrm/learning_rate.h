#pragma once
// The learning rate of a step: warm-up, decay, or neither.
#include <cstdint>

namespace tutti::dlrm {

struct LearningRate {
  double base = 0.01;
  std::int64_t warmup_steps = 0, decay_start = 0, decay_steps = 0;

  // Steps of the optimizer count from 1. It rises by base / warmup_steps a step, falls by the square of what is left of
  // decay_steps, but not below 1e-7, and stays where it was in between and afterwards.
  double at(std::int64_t step) const;
};

}  // namespace tutti::dlrm
