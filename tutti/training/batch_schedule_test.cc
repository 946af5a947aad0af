#include "tutti/training/batch_schedule.h"

#include <gtest/gtest.h>

#include <functional>

#include "tutti/base/error.h"

namespace tutti {
namespace {

std::string sentence(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& error) {
    return error.error().detail;
  }
  return "none";
}

// The cases of Megatron-LM's test_num_microbatches_calculator.py.
TEST(BatchSchedule, CountsAsMegatron) {
  const BatchSchedule two({.micro_batch = 8, .replicas = 2, .global_batch = 32});
  EXPECT_EQ(two.microbatches(0), 2);
  EXPECT_EQ(two.global_batch(1000), 32);
  EXPECT_EQ(two.unit(), 16);
  const BatchSchedule decreased({.micro_batch = 8, .replicas = 3, .global_batch = 32, .decrease_if_needed = true});
  EXPECT_EQ(decreased.microbatches(0), 1);
  EXPECT_EQ(decreased.global_batch(0), 24);
  const BatchSchedule down({.micro_batch = 8, .replicas = 2, .global_batch = 33, .decrease_if_needed = true});
  EXPECT_EQ(down.global_batch(0), 32);
}

// --rampup-batch-size 16 8 300000 with 1024: 126 steps of 2380.95 samples each.
TEST(BatchSchedule, RampsUp) {
  const BatchSchedule ramp({.micro_batch = 4, .replicas = 2, .global_batch = 1024, .ramp_up = {{16, 8, 300000}}});
  EXPECT_EQ(ramp.global_batch(0), 16);
  EXPECT_EQ(ramp.global_batch(2380), 16);
  EXPECT_EQ(ramp.global_batch(2381), 24);
  EXPECT_EQ(ramp.global_batch(299999), 1016);
  EXPECT_EQ(ramp.global_batch(300000), 1024);
  EXPECT_EQ(ramp.microbatches(0), 2);
  EXPECT_EQ(ramp.most_microbatches(), 128);
  const BatchSchedule none({.micro_batch = 1, .replicas = 1, .global_batch = 8, .ramp_up = {{8, 2, 100}}});
  EXPECT_EQ(none.global_batch(0), 8);
}

TEST(BatchSchedule, StepsAtGivenSamples) {
  const auto steps = parse_batch_steps("0:768 250B:1536", 1000);
  EXPECT_EQ(steps, (std::vector<BatchScheduleOptions::Step>{{0, 768}, {250'000'000, 1536}}));
  EXPECT_EQ(parse_batch_steps("0:8  1.5K:16")[1].from_samples, 1500);
  const BatchSchedule schedule({.micro_batch = 1, .replicas = 4, .steps = parse_batch_steps("0:8 100:16 1K:32")});
  EXPECT_EQ(schedule.global_batch(99), 8);
  EXPECT_EQ(schedule.global_batch(100), 16);
  EXPECT_EQ(schedule.microbatches(5000), 8);
  EXPECT_EQ(schedule.most_microbatches(), 8);
}

TEST(BatchSchedule, MistakesAreSentences) {
  EXPECT_EQ(
      sentence([] { BatchSchedule({.micro_batch = 8, .replicas = 3, .global_batch = 32}); }),
      "batches: a global batch of 32 is no multiple of micro batch 8 x 3 replicas (= 24): choose 24 or 48, or let it "
      "be decreased");
  EXPECT_EQ(sentence([] { BatchSchedule({.micro_batch = 8, .replicas = 4, .global_batch = 8}); }),
            "batches: a global batch of 8 is no multiple of micro batch 8 x 4 replicas (= 32): choose 32");
  EXPECT_EQ(sentence([] {
              BatchSchedule({.global_batch = 32, .ramp_up = {{16, 5, 100}}});
            }),
            "batches: the ramp-up cannot lead from 16 to 32 in increments of 5: these do not divide 16");
  EXPECT_EQ(sentence([] {
              BatchSchedule({.micro_batch = 4, .global_batch = 32, .ramp_up = {{2, 5, 100}}});
            }),
            "batches: a global batch of 2 is no multiple of micro batch 4 x 1 replicas (= 4): choose 4");
  EXPECT_EQ(sentence([] { parse_batch_steps("0:8 x:9"); }),
            "batches: \"x\" in \"0:8 x:9\", expected a count such as 1536 or 250B");
  EXPECT_EQ(sentence([] { parse_batch_steps("5:8"); }), "batches: the steps begin at sample 5, expected 0");
  EXPECT_EQ(sentence([] { parse_batch_steps("0:8 10:16 10:32"); }),
            "batches: the step at sample 10 comes after that at 10, expected ascending ones");
  EXPECT_EQ(sentence([] { parse_batch_steps(""); }), "batches: no steps of the batch size in \"\"");
  EXPECT_EQ(sentence([] { BatchSchedule({.micro_batch = 0}); }),
            "batches: micro batch 0 x 1 replicas, expected 1 or more of each");
}

}  // namespace
}  // namespace tutti
