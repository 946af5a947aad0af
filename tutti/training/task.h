#pragma once
// What a program supplies to the Trainer (trainer.h): its model and data, and how a step is made.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/training/training_step.h"

namespace tutti {

struct TrainingResult;

// Every rank has one, and the Trainer calls the functions of all ranks alike, on one thread. All may throw Exception.
class Task {
 public:
  virtual ~Task() = default;

  // Steps from the present state to the end of the training; 0: it has ended.
  virtual std::int64_t steps_left() const = 0;
  // To the end of the epoch, or if that is reached, of the next epoch: each has its own warm-up (step_timer.h).
  virtual std::int64_t steps_left_in_epoch() const { return steps_left(); }
  // Forward, backward and optimizer of step `number`. Steps count from 1 over all runs of a training.
  virtual TrainingStep step(std::int64_t number) = 0;
  // After every TrainerOptions::evaluation_interval steps, and with `final` after the last step. Returns numbers for
  // TensorBoard.
  virtual Scalars evaluate(std::int64_t /*step*/, bool /*final*/) { return {}; }
  // After the last evaluation; also if the job was stopped. For results that are no checkpoint.
  virtual void finish(const TrainingResult& /*result*/) {}

  // This rank's part of a checkpoint. The memory that the boxes refer to stays until the next step.
  virtual std::vector<SavedBox> boxes() = 0;
  // The boxes that load() reads, as far as they are known before the checkpoint is.
  virtual std::vector<SavedBox> boxes_to_load() { return boxes(); }
  virtual CheckpointFacts facts(std::int64_t step) const = 0;
  // Restores the state, or with `weights_only` the weights alone. Returns the number of the step that it is of. The
  // error of one rank ends the run on all.
  virtual Result<std::int64_t> load(const CheckpointReader& saved, bool weights_only) = 0;
  // In place of load() where there is no checkpoint.
  virtual Result<std::int64_t> start() { return std::int64_t(0); }
  // Why steps_left() is 0 before the first step, for "nothing is left to train: ..."; empty: that is as it should be.
  virtual std::string nothing_left() const { return {}; }
};

}  // namespace tutti
