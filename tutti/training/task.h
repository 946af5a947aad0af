#pragma once
// What a program supplies to the Trainer (trainer.h): its model and data, and how a step is made.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/checkpoint/state.h"
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

  // What checkpoints save and load of this rank, in one function for both (checkpoint/state.h). A load of weights alone
  // (StateDict::weights_only()) begins at step 0.
  virtual void state(StateDict& state) = 0;
  // Called if there is no checkpoint to resume from. Returns the number of the step that the state is of.
  virtual Result<std::int64_t> start() { return std::int64_t(0); }
  // Why steps_left() is 0 before the first step, for "nothing is left to train: ..."; empty: no message.
  virtual std::string nothing_left() const { return {}; }
  // Runs a part of the training that the Trainer makes with this task; `when` is for errors: "in step 5". A task that
  // knows more of an error than its message says throws another one.
  virtual void run_part(const std::string& /*when*/, const std::function<void()>& part) { part(); }
};

}  // namespace tutti
