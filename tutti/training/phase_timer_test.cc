#include "tutti/training/phase_timer.h"

#include <gtest/gtest.h>

#include "tests/harness/manual_stream_clock.h"

namespace tutti {
namespace {

using std::chrono::seconds;

TEST(PhaseTimers, OnTheHostAStepHasItsOwnPhases) {
  PhaseTimer phases(nullptr);
  TrainingStep made;
  phases.begin();
  phases.lap(&TrainingStep::data);
  for (const auto begin = now(); now() == begin;) {
  }
  phases.lap(&TrainingStep::forward);
  phases.end(made);
  EXPECT_GT(made.forward, 0);
  EXPECT_EQ(made.optimizer, 0);
  TrainingStep next;
  phases.end(next);
  EXPECT_EQ(next.forward, 0) << "a phase is added once";
}

TEST(PhaseTimers, OnAGpuAStepHasThePhasesOfTheStepsThatHaveRun) {
  const auto stream = std::make_shared<test::ManualStreamClock>();
  PhaseTimer phases(stream);
  const auto step = [&](int scale) {
    TrainingStep made;
    phases.begin();
    stream->put(seconds(scale * 2));
    phases.lap(&TrainingStep::forward);
    stream->put(seconds(scale * 3));
    phases.lap(&TrainingStep::backward);
    phases.end(made);
    return made;
  };
  EXPECT_EQ(step(1).forward, 0) << "nothing has run";
  stream->run();
  stream->put(seconds(1000));  // an evaluation: of no phase
  const TrainingStep second = step(10);
  EXPECT_DOUBLE_EQ(second.forward, 2);
  EXPECT_DOUBLE_EQ(second.backward, 3);
  step(100);
  stream->run();
  const TrainingStep last = step(1);
  EXPECT_DOUBLE_EQ(last.forward, 220) << "of two steps";
  EXPECT_DOUBLE_EQ(last.backward, 330);
}

TEST(PhaseTimers, ABrokenGpuHasNoTimes) {
  const auto stream = std::make_shared<test::ManualStreamClock>();
  stream->is_broken = true;
  PhaseTimer phases(stream);
  TrainingStep made;
  phases.begin();
  phases.lap(&TrainingStep::forward);
  phases.end(made);
  EXPECT_EQ(made.forward, 0);
}

}  // namespace
}  // namespace tutti
