#include "tutti/training/step_timer.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti {

void StepTimer::begin_epoch(std::int64_t steps) {
  warm_up_ = std::min(kWarmUpSteps, steps - 1);
  made_ = 0;
}

void StepTimer::add(double seconds, double samples) {
  last_ = seconds;
  if (++made_ <= warm_up_) return;
  seconds_.push_back(seconds);
  ++sum_.steps;
  sum_.samples += samples;
  sum_.step_seconds += seconds;
}

void StepTimer::end_epoch(Clock::time_point at) {
  if (made_ > warm_up_) sum_.wall_seconds += to_seconds(at - begin_);
}

StepTiming StepTimer::timing() const {
  StepTiming timing = sum_;
  timing.median_seconds = seconds_.empty() ? last_ : median(seconds_);
  return timing;
}

}  // namespace tutti
