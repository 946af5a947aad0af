#pragma once
// Measures the phases of a TrainingStep. On a GPU they are the time that its stream took, by events that are read once
// they have passed: nothing waits, so a step reports the phases of an earlier one.
//
//   phases.begin();
//   batch = loader.next();           phases.lap(&TrainingStep::data);
//   loss = model.forward(batch);     phases.lap(&TrainingStep::forward);
//   phases.end(made);
#include <deque>
#include <memory>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/trace/stream_clock.h"
#include "tutti/training/training_step.h"

namespace tutti {

class PhaseTimer {
 public:
  using Phase = double TrainingStep::*;

  explicit PhaseTimer(std::shared_ptr<StreamClock> clock) : clock_(std::move(clock)) {}  // null: the host's
  bool is_of_gpu() const { return clock_ != nullptr; }

  void begin();           // of a step
  void lap(Phase phase);  // what came since the last call belongs to it
  // Adds to the phases of `made` those of this step; on a GPU, those of the steps whose kernels have run since the last
  // end(). Steady training has one of them.
  void end(TrainingStep& made);

 private:
  struct Lap {
    Phase phase;
    StreamMarkPtr begin, end;
  };

  const std::shared_ptr<StreamClock> clock_;
  StreamMarkPtr mark_;
  std::vector<Lap> laps_;               // of this step
  std::deque<std::vector<Lap>> steps_;  // that have ended on the host
  Clock::time_point last_{};
  TrainingStep sum_;
};

}  // namespace tutti
