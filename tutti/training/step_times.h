#pragma once
// Where the time of a training step goes, and what it was for.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/trace/timers.h"

namespace tutti {

// One step of this rank, in seconds; the phases do not overlap, and what is left of `step` is none of them.
struct StepTimes {
  double step = 0;
  double data = 0;                   // waiting for the batch
  double forward = 0, backward = 0;  // communication under backward included, as far as it is hidden
  double exposed = 0;                // communication that nothing hid
  double optimizer = 0;
  double samples = 0;  // of all ranks
  double loss = 0;     // the mean over all ranks: mean_over_ranks()
  double lr = 0;
};

// The sum of StepTimes, by phase.
class PhaseTotals {
 public:
  void add(const StepTimes& times);
  std::int64_t steps() const { return steps_; }
  // "data", "forward", "backward", "exposed communication", "optimizer", "step": since the beginning.
  std::vector<TimerReading> readings() const;

 private:
  StepTimes sum_;
  std::int64_t steps_ = 0;
};

// Collective, of 8 bytes.
double mean_over_ranks(const Group& group, double value);

}  // namespace tutti
