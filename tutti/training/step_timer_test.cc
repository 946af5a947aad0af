#include "tutti/training/step_timer.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

Clock::time_point at(double seconds) { return Clock::time_point() + from_seconds(seconds); }

// Steps that begin at `begin` and take one second more each; returns when the epoch ended.
double epoch(StepTimer& timer, std::int64_t planned, std::int64_t made, double begin) {
  timer.begin_epoch(planned);
  for (std::int64_t step = 1; step <= made; ++step) {
    if (timer.warmed_up()) timer.start(at(begin));
    timer.add(double(step), 10);
    begin += double(step) + 0.5;  // half a second between steps
  }
  timer.end_epoch(at(begin));
  return begin;
}

TEST(StepTimer, EachEpochHasItsWarmUp) {
  StepTimer timer;
  epoch(timer, 5, 5, epoch(timer, 6, 6, 100));
  const StepTiming timing = timer.timing();  // 4, 5, 6 and 4, 5
  EXPECT_EQ(timing.steps, 5);
  EXPECT_EQ(timing.samples, 50);
  EXPECT_DOUBLE_EQ(timing.step_seconds, 24);
  EXPECT_NEAR(timing.wall_seconds, 24 + 5 * 0.5, 1e-6);
  EXPECT_EQ(timing.median_seconds, 5);
}

TEST(StepTimer, OfAShortEpochTheLastStepIsTimed) {
  for (std::int64_t steps = 1; steps <= 4; ++steps) {
    StepTimer timer;
    epoch(timer, steps, steps, 0);
    EXPECT_EQ(timer.timing().steps, 1) << steps;
    EXPECT_EQ(timer.timing().step_seconds, double(steps));
  }
}

TEST(StepTimer, ARunThatEndsWithinItsWarmUpHasTheMedianOfItsLastStep) {
  StepTimer timer;
  EXPECT_EQ(timer.timing().median_seconds, 0);
  epoch(timer, 100, 2, 0);
  EXPECT_EQ(timer.timing().steps, 0);
  EXPECT_EQ(timer.timing().wall_seconds, 0);
  EXPECT_EQ(timer.timing().median_seconds, 2);
}

TEST(StepTimer, WhatIsExcludedDoesNotCount) {
  StepTimer timer;
  timer.begin_epoch(1);
  timer.start(at(0));
  timer.add(1, 1);
  timer.exclude(from_seconds(10));
  timer.end_epoch(at(12));
  EXPECT_NEAR(timer.timing().wall_seconds, 2, 1e-6);
}

}  // namespace
}  // namespace tutti
