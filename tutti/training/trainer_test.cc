// The loop with a task whose only weight counts its steps.
#include "tutti/training/trainer.h"

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <thread>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/stop_request.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Counting final : public Task {
 public:
  explicit Counting(std::int64_t steps) : steps_(steps) {}

  std::int64_t steps_left() const override { return steps_ - std::int64_t(weight); }
  TrainingStep step(std::int64_t number) override {
    calls.push_back("step " + std::to_string(number));
    if (on_step) on_step(number);
    weight += 1;
    if (number == bad_step) return bad;
    return {.loss = 1.0 / double(number), .samples = 8};
  }
  Scalars evaluate(std::int64_t step, bool final) override {
    calls.push_back((final ? "final evaluation " : "evaluation ") + std::to_string(step));
    return {{"test/weight", weight}};
  }
  void finish(const TrainingResult&) override { calls.push_back("finish"); }
  void run_part(const std::string& when, const std::function<void()>& part) override {
    parts.push_back(when);
    part();
  }

  void state(StateDict& state) override {
    state.tensor({.key = {"weight"}, .shape = {1}, .data = &weight});
    if (!state.loading()) return;
    state.check(
        [this](const CheckpointReader&) { return refuses ? Status(invalid_argument("another model")) : Status(); });
    state.after_load([this, weights_only = state.weights_only()](const CheckpointReader&) {
      if (weights_only) base = std::exchange(weight, 0);
      return Status();
    });
  }
  std::string nothing_left() const override { return weight > 0 ? "all steps were made" : ""; }

  float weight = 0, base = 0;
  std::int64_t bad_step = 0;
  TrainingStep bad;
  bool refuses = false;
  std::function<void(std::int64_t)> on_step;
  std::vector<std::string> calls, parts;

 private:
  const std::int64_t steps_;
};

TrainerOptions quiet(const std::string& folder = "") {
  TrainerOptions options{.line_seconds = -1};
  options.checkpoints.folder = folder;
  return options;
}

void on_ranks(int ranks, const test::RankBody& body) { EXPECT_EQ(test::describe(test::run_threads(ranks, body)), ""); }
// Of processes: a request to stop is for all of one.
void on_processes(int ranks, const test::RankBody& body) {
  EXPECT_EQ(test::describe(test::run_processes(ranks, body)), "");
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("step-")) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Trainer, EvaluatesAtTheIntervalAndAfterTheLastStep) {
  on_ranks(2, [](Group& world) {
    Counting task(4);
    auto options = quiet();
    options.evaluation_interval = 2;
    const auto result = train(world, task, options);
    EXPECT_THAT(task.calls,
                ElementsAre("step 1", "step 2", "evaluation 2", "step 3", "step 4", "final evaluation 4", "finish"));
    EXPECT_EQ(result.step, 4);
    EXPECT_EQ(result.steps, 4);
    EXPECT_EQ(result.timing.steps, 1) << "after a warm-up of three";
    EXPECT_EQ(result.timing.samples, 8);
    EXPECT_EQ(result.last_loss, 0.25);
    EXPECT_EQ(exit_code(result), 0);
  });
}

TEST(Trainer, TheTaskRunsThePartsOfTheTraining) {
  on_ranks(1, [](Group& world) {
    Counting task(1);
    (void)train(world, task, quiet());
    EXPECT_THAT(task.parts, ElementsAre("while the state was loaded or made", "in step 1",
                                        "in the evaluation after step 1", "after the last step"));
  });
}

TEST(Trainer, EvaluatesWhereAStepAsksForIt) {
  on_ranks(1, [](Group& world) {
    Counting task(2);
    task.bad_step = 1;
    task.bad = {.loss = 1, .evaluate = true};
    (void)train(world, task, quiet());
    EXPECT_THAT(task.calls, ElementsAre("step 1", "evaluation 1", "step 2", "final evaluation 2", "finish"));
  });
}

TEST(Trainer, ResumesAfterTheStepOfTheCheckpoint) {
  const test::TemporaryFolder folder;
  const std::string runs = folder.path() + "/run";
  on_ranks(2, [&](Group& world) {
    auto options = quiet(runs);
    options.exit_interval = 3;
    Counting first(5), second(5), third(5);
    EXPECT_TRUE(train(world, first, options).left);
    EXPECT_EQ(first.calls.back(), "finish") << "no evaluation: training has not ended";
    EXPECT_FALSE(train(world, second, options).left);
    EXPECT_THAT(second.calls, ElementsAre("step 4", "step 5", "final evaluation 5", "finish"));
    EXPECT_EQ(second.weight, 5);
    const auto result = train(world, third, options);
    EXPECT_THAT(third.calls, ElementsAre("final evaluation 5", "finish"));
    EXPECT_EQ(result.steps, 0);
    EXPECT_EQ(result.saving.saved, 0u) << "the folder has this step";
  });
  EXPECT_THAT(checkpoints_in(runs), ElementsAre("step-0000003", "step-0000005"));
}

TEST(Trainer, WeightsAloneBeginAtStepOne) {
  const test::TemporaryFolder folder;
  on_ranks(2, [&](Group& world) {
    Counting first(3), tuned(2), again(2);
    (void)train(world, first, quiet(folder.path() + "/base"));
    auto options = quiet(folder.path() + "/tuned");
    options.checkpoints.resume = folder.path() + "/base";
    options.checkpoints.weights_only = true;
    (void)train(world, tuned, options);
    EXPECT_EQ(tuned.base, 3);
    EXPECT_EQ(tuned.calls.front(), "step 1");
  });
}

TEST(Trainer, AFinishedTrainingIsSavedInTheFolderOfTheRun) {
  const test::TemporaryFolder folder;
  const std::string other = folder.path() + "/other";
  on_ranks(2, [&](Group& world) {
    Counting first(3), second(3);
    (void)train(world, first, quiet(folder.path() + "/first"));
    auto options = quiet(other);
    options.checkpoints.resume = folder.path() + "/first";
    (void)train(world, second, options);
  });
  EXPECT_THAT(checkpoints_in(other), ElementsAre("step-0000003"));
}

TEST(Trainer, SavesAtTheIntervalAndAtTheEnd) {
  const test::TemporaryFolder folder;
  on_ranks(2, [&](Group& world) {
    Counting task(5);
    auto options = quiet(folder.path());
    options.checkpoints.interval = 2;
    (void)train(world, task, options);
  });
  EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre("step-0000002", "step-0000004", "step-0000005"));
}

TEST(Trainer, LeavesWhenTheTimeIsOver) {
  const test::TemporaryFolder folder;
  on_ranks(2, [&](Group& world) {
    Counting task(5);
    auto options = quiet(folder.path());
    options.exit_after_seconds = 1e-9;
    const auto result = train(world, task, options);
    EXPECT_TRUE(result.left);
    EXPECT_EQ(exit_code(result), 0);
  });
  EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre("step-0000001"));
}

TEST(Trainer, AJobThatIsStoppedSavesAndIsToBeStartedAgain) {
  const test::TemporaryFolder folder;
  on_processes(2, [&](Group& world) {
    Counting task(5);
    task.on_step = [&](std::int64_t step) {
      if (step == 2 && world.rank() == 1) request_stop(SIGTERM);
    };
    const auto result = train(world, task, quiet(folder.path()));
    test::check(result.stopped && exit_code(result) == kLeftEarly, "not stopped");
    test::check(result.step == 2 && task.calls.back() == "finish", "step ", result.step);
    test::check(task.calls[task.calls.size() - 2] == "step 2", "evaluated");
  });
  EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre("step-0000002"));
}

TEST(Trainer, AJobThatIsStoppedInItsLastStepHasFinished) {
  const test::TemporaryFolder folder;
  on_processes(1, [&](Group& world) {
    Counting task(2);
    task.on_step = [](std::int64_t step) {
      if (step == 2) request_stop(SIGTERM);
    };
    const auto result = train(world, task, quiet(folder.path()));
    test::check(!result.stopped && exit_code(result) == 0, "stopped");
    test::check(task.calls[2] == "final evaluation 2", task.calls[2]);
  });
}

TEST(Trainer, ALossThatIsNotFiniteEndsTheRun) {
  const auto train_with = [](const TrainingStep& bad) {
    return test::describe(test::run_threads(1, [&](Group& world) {
      Counting task(3);
      task.bad_step = 2;
      task.bad = bad;
      (void)train(world, task, quiet());
    }));
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(train_with({.loss = kNan}), HasSubstr("the loss of step 2 is not a number"));
  EXPECT_THAT(train_with({.loss = std::numeric_limits<double>::infinity()}), HasSubstr("step 2 is infinite"));
  EXPECT_THAT(train_with({.loss = kNan, .skipped = true}), IsEmpty());
  EXPECT_THAT(train_with({.loss = kNan, .may_overflow = true}), IsEmpty());
  EXPECT_THAT(train_with({}), IsEmpty()) << "a loss that is not known";
}

TEST(Trainer, WhatOneRankCannotLoadEndsTheRunOnAll) {
  const test::TemporaryFolder folder;
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    Counting first(1), second(2);
    (void)train(world, first, quiet(folder.path()));
    second.refuses = world.rank() == 1;
    (void)train(world, second, quiet(folder.path()));
  });
  for (const auto& outcome : outcomes) EXPECT_THAT(outcome.error, HasSubstr("rank 1: another model"));
}

}  // namespace
}  // namespace tutti
