#pragma once
// How long training steps take, without the warm-up: the first three steps of each epoch, or all but the last step of a
// shorter epoch. First steps touch new memory, and their ranks have not been running side by side yet. Time is an
// argument, so that tests need no clock.
#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/base/clock.h"

namespace tutti {

inline constexpr std::int64_t kWarmUpSteps = 3;

struct StepTiming {
  std::int64_t steps = 0;     // timed
  double samples = 0;         // of them, of all ranks
  double wall_seconds = 0;    // from the begin of the first timed step of an epoch to the end of the last
  double step_seconds = 0;    // TrainingStep::seconds, added up: without what lies between steps
  double median_seconds = 0;  // of a step. Where the run ended within its warm-up, of its last step; 0: no step

  double samples_per_s() const { return wall_seconds > 0 ? samples / wall_seconds : 0; }
};

class StepTimer {
 public:
  // `steps`: of the epoch that begins, at least one. If the job is stopped, fewer are made.
  void begin_epoch(std::int64_t steps);
  // Whether the next step is the first timed one: ranks wait for each other, then call start().
  bool warmed_up() const { return made_ == warm_up_; }
  void start(Clock::time_point at) { begin_ = at; }
  void add(double seconds, double samples);
  // What is not part of training, such as an evaluation.
  void exclude(Duration took) { begin_ += took; }
  void end_epoch(Clock::time_point at);
  StepTiming timing() const;

 private:
  std::int64_t warm_up_ = 0, made_ = 0;  // of the epoch
  Clock::time_point begin_{};
  double last_ = 0;
  std::vector<double> seconds_;  // of each timed step
  StepTiming sum_;
};

}  // namespace tutti
