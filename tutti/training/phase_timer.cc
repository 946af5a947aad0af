#include "tutti/training/phase_timer.h"

#include <utility>

namespace tutti {

void PhaseTimer::begin() {
  if (clock_)
    mark_ = clock_->mark();
  else
    last_ = now();
}

void PhaseTimer::lap(Phase phase) {
  if (!clock_) {
    const Clock::time_point end = now();
    sum_.*phase += to_seconds(end - last_);
    last_ = end;
    return;
  }
  StreamMarkPtr end = clock_->mark();
  if (mark_ && end) laps_.push_back({phase, std::move(mark_), end});
  mark_ = std::move(end);
}

void PhaseTimer::end(TrainingStep& made) {
  if (clock_) steps_.push_back(std::exchange(laps_, {}));
  for (; !steps_.empty(); steps_.pop_front()) {
    const std::vector<Lap>& laps = steps_.front();
    if (!laps.empty() && !laps.back().end->has_passed()) break;
    for (const auto& [phase, begin, end] : laps)
      if (const auto took = clock_->between(*begin, *end)) sum_.*phase += to_seconds(*took);
  }
  for (const Phase phase : {&TrainingStep::data, &TrainingStep::forward, &TrainingStep::backward,
                            &TrainingStep::exposed, &TrainingStep::optimizer})
    made.*phase += std::exchange(sum_.*phase, 0);
}

}  // namespace tutti
