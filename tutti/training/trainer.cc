// A step in this order: step, report, evaluation, checkpoint, stop. A checkpoint so holds what an evaluation changed
// (the best score), and a job that is stopped has reported all that it saved.
#include "tutti/training/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "tutti/base/log.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"

namespace tutti {

int exit_code(const TrainingResult& result) { return result.stopped ? kLeftEarly : 0; }

Trainer::Trainer(const Group& world, Task& task, TrainerOptions options)
    : world_(world),
      task_(task),
      options_(std::move(options)),
      recorder_(world, options_.record),
      checkpoints_(world, options_.checkpoints) {
  resume();
}

void Trainer::resume() {
  checkpoints_.add("", task_);
  Checkpointer::Resumed resumed;
  Result<std::int64_t> step = std::int64_t(0);
  task_.run_part("while the state was loaded or made", [&] {
    resumed = checkpoints_.resume();
    step = resumed.source ? resumed.step : task_.start();
  });
  agree(world_, step.status()).or_throw();
  step_ = *step;
  if (resumed.source == ResumeSource::kOwnFolder) saved_step_ = step_;
}

TrainingResult Trainer::run() {
  begin_ = now();
  const std::int64_t left = task_.steps_left();
  line_.emplace(stderr, step_ + left, world_.rank() == 0 ? options_.line_seconds : -1, step_);
  if (const std::string why = left == 0 ? task_.nothing_left() : ""; !why.empty()) {
    if (world_.rank() == 0) log::info("nothing is left to train: " + why);
    if (checkpoints_.saves() && saved_step_ != step_) save();  // what was resumed is not in this run's folder
  }
  while (task_.steps_left() > 0 && !result_.stopped && !result_.left) make_step();
  result_.seconds = seconds_since(begin_);
  result_.step = step_;
  result_.timing = timer_.timing();
  line_->finish();
  if (!result_.stopped && !result_.left) evaluate(true);
  task_.run_part("after the last step", [&] { task_.finish(result_); });
  checkpoints_.finish();
  result_.saving = checkpoints_.stats();
  result_.copying = checkpoints_.copy_stats();
  recorder_.finish();  // last: a disk too full for the trace must not cost the checkpoint
  return result_;
}

void Trainer::begin_step() {
  if (epoch_left_ == 0) {
    epoch_left_ = task_.steps_left_in_epoch();
    timer_.begin_epoch(epoch_left_);
  }
  if (timer_.warmed_up()) {
    barrier(world_);
    timer_.start(now());
  }
  world_.step(++step_);
}

void Trainer::make_step() {
  begin_step();
  const auto begin = now();
  TrainingStep made;
  task_.run_part(fmt::format("in step {}", step_), [&] { made = task_.step(step_); });
  if (made.seconds == 0) made.seconds = seconds_since(begin);
  if (made.loss && !std::isfinite(*made.loss) && !made.skipped && !made.may_overflow)
    throw Exception(
        loss_not_finite(world_, *made.loss, fmt::format("step {}", step_), "", "a smaller learning rate may help"));
  timer_.add(made.seconds, made.samples);
  ++result_.steps;
  if (made.loss) result_.last_loss = made.loss;
  recorder_.step(step_, made);
  line_->record(made);
  after_step(made.evaluate);
  --epoch_left_;
  if (epoch_left_ > 0 && task_.steps_left() > 0 && !result_.stopped && !result_.left) return;
  barrier(world_);
  timer_.end_epoch(now());
}

void Trainer::after_step(bool evaluate_now) {
  const auto multiple_of = [&](std::int64_t interval) { return interval > 0 && step_ % interval == 0; };
  if (evaluate_now || (multiple_of(options_.evaluation_interval) && task_.steps_left() > 0)) evaluate(false);
  const bool last = task_.steps_left() == 0;
  const bool leave = multiple_of(options_.exit_interval) || out_of_time();
  const auto due = checkpoints_.due(step_, last || leave);
  if (due.save) save();
  if (due.copy) task_.run_part(fmt::format("in the copy of step {}", step_), [&] { checkpoints_.copy(step_); });
  result_.left = leave && !last;
  result_.stopped = due.stop && !last;
}

void Trainer::evaluate(bool final) {
  const auto begin = now();
  task_.run_part(fmt::format("in the evaluation after step {}", step_),
                 [&] { recorder_.add(step_, task_.evaluate(step_, final)); });
  timer_.exclude(now() - begin);
}

// Ranks have started at different times, and leave together.
bool Trainer::out_of_time() const {
  if (options_.exit_after_seconds <= 0) return false;
  const std::int64_t over = seconds_since(begin_) > options_.exit_after_seconds;
  return all_reduce(world_, over, ReduceOp::kMax) != 0;
}

void Trainer::save() {
  const auto timing =
      options_.timers ? options_.timers->time_on_host("save-checkpoint", 1) : LeveledTimers::Timing(nullptr);
  task_.run_part(fmt::format("in the save of step {}", step_), [&] { checkpoints_.save(step_); });
  saved_step_ = step_;
}

TrainingResult train(const Group& world, Task& task, TrainerOptions options) {
  return Trainer(world, task, std::move(options)).run();
}

}  // namespace tutti
