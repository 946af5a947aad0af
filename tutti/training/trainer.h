#pragma once
// The training loop: resumes, makes steps, reports them, evaluates, saves checkpoints, and stops when the job is asked
// to. The program supplies a Task (task.h):
//
//   struct Lines final : tutti::Task {                  // fits a model to lines of text
//     std::int64_t steps_left() const override { return 1000 - made; }
//     tutti::TrainingStep step(std::int64_t number) override {
//       ...                                             // forward, backward, optimizer
//       ++made;
//       return {.loss = tutti::mean_over_ranks(world, loss), .lr = 0.1, .samples = 64.0 * world.size()};
//     }
//     void state(tutti::StateDict& state) override { ... }   // weights, optimizer, position in the data
//   };
//   Lines task(world);
//   const auto result = tutti::train(world, task, {.checkpoints = {.folder = "runs/a", .interval = 100}});
//   return tutti::exit_code(result);
#include <cstdint>
#include <optional>

#include "tutti/checkpoint/checkpointer.h"
#include "tutti/comm/group.h"
#include "tutti/training/leveled_timers.h"
#include "tutti/training/recorder.h"
#include "tutti/training/step_line.h"
#include "tutti/training/step_timer.h"
#include "tutti/training/task.h"

namespace tutti {

struct TrainerOptions {
  CheckpointerOptions checkpoints;
  std::int64_t evaluation_interval = 0;  // steps; 0: evaluate after the last step only
  // End the run early, and save: after a step whose number is a multiple of exit_interval, or after this time; 0: do
  // not.
  std::int64_t exit_interval = 0;
  double exit_after_seconds = 0;
  double line_seconds = 1;  // between lines of progress on standard error of rank 0; 0: every step; negative: none
  RecorderOptions record;
  LeveledTimers* timers = nullptr;  // measures "save-checkpoint"
};

struct TrainingResult {
  std::int64_t step = 0;   // the number of the last step
  std::int64_t steps = 0;  // made by this run
  double seconds = 0;      // of these, with all that lies between them
  StepTiming timing;
  std::optional<double> last_loss;
  bool stopped = false;  // the job was asked to stop while steps were left, and has saved
  bool left = false;     // exit_interval or exit_after_seconds ended the run while steps were left
  BackgroundSaverStats saving;
  MemoryCopiesStats copying;
};

// kLeftEarly if the job was stopped, so that it is started again; else 0.
int exit_code(const TrainingResult& result);

// Every rank makes one and calls alike, on one thread. `world` and `task` have to stay.
class Trainer {
 public:
  // Checks that outputs can be written, and loads the checkpoint to resume from or calls Task::start(). Collective.
  // Throws Exception.
  Trainer(const Group& world, Task& task, TrainerOptions options);

  // To the end of the training, or until the job is stopped. Once. Throws Exception: the error of a step with its root
  // cause, a loss that is not finite (kNonFinite), a last checkpoint that could not be saved.
  TrainingResult run();

 private:
  void resume();
  void begin_step();
  void make_step();
  void after_step(bool evaluate);
  void evaluate(bool final);
  bool out_of_time() const;
  void save();

  const Group& world_;
  Task& task_;
  const TrainerOptions options_;
  Recorder recorder_;
  Checkpointer checkpoints_;
  StepTimer timer_;
  std::optional<StepLine> line_;
  Clock::time_point begin_{};
  std::int64_t step_ = 0;
  std::int64_t epoch_left_ = 0;   // steps
  std::int64_t saved_step_ = -1;  // the newest step in the folder of checkpoints; -1: none is known
  TrainingResult result_;
};

// Trainer(world, task, options).run()
TrainingResult train(const Group& world, Task& task, TrainerOptions options);

}  // namespace tutti
