#pragma once
// What one optimizer step did, and how long its phases took.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/trace/timers.h"

namespace tutti {

// A number for TensorBoard. `at`: its position on the axis; negative: the number of the step.
struct Scalar {
  std::string tag;
  double value = 0;
  std::int64_t at = -1;
};
using Scalars = std::vector<Scalar>;

struct TrainingStep {
  std::optional<double> loss;  // the mean over the samples of all ranks (mean_over_ranks()); none: not known
  double lr = 0;
  double samples = 0;         // of all ranks
  bool skipped = false;       // gradients overflowed in f16: the weights are those of the step before
  bool may_overflow = false;  // the loss may be infinite: f16 with a loss scale, which will be lowered
  bool evaluate = false;      // evaluate now, whatever TrainerOptions::evaluation_interval says
  Scalars scalars;            // of the program, beside those of TrainerOptions::step_scalars

  // Seconds of this rank. The phases do not overlap; the rest of `seconds` belongs to none of them. On a GPU they are
  // those of its stream, of the step before (phase_timer.h).
  double seconds = 0;                // of the whole step; 0: the Trainer measures Task::step()
  double data = 0;                   // waiting for the batch
  double forward = 0, backward = 0;  // with the communication that backward hides
  double exposed = 0;                // communication that nothing hides
  double optimizer = 0;
};

// The phases of several steps, added up.
class PhaseTotals {
 public:
  void add(const TrainingStep& step);
  std::int64_t steps() const { return steps_; }
  // "data", "forward", "backward", "exposed communication", "optimizer", "step".
  std::vector<TimerReading> readings() const;

 private:
  TrainingStep sum_;
  std::int64_t steps_ = 0;
};

// Collective, of 8 bytes.
double mean_over_ranks(const Group& group, double value);

// The error (kNonFinite) of a loss that is a NaN or infinite. `where`: "step 5", "batch 3 of epoch 1"; the sentence
// goes on with `of_samples`, for example "in the samples of rank 2".
Error loss_not_finite(const Group& world, double loss, const std::string& where, const std::string& of_samples,
                      std::string hint);
// "in the samples of rank 2"
std::string in_samples_of(const Group& world);

}  // namespace tutti
