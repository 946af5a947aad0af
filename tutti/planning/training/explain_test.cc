#include "tutti/planning/training/explain.h"

#include <gmock/gmock.h>

#include <string>

#include "tutti/base/text.h"

namespace tutti::planning {
namespace {

using testing::EndsWith;

TEST(PlanReasons, NameThePartThatGrewMost) {
  const auto nodes_of = [](int count, int devices) { return Cluster{.nodes = {{.count = count, .devices = devices}}}; };
  const Cluster cluster = nodes_of(8, 8);
  RankedPlan best, other;
  best.time = {.compute = 8, .tensor = 1, .bubble = 1};
  other.plan = {.tensor = 16, .data = 4, .micro_batch = 1};
  other.time = {.compute = 8.5, .tensor = 6, .bubble = 0};
  EXPECT_EQ(
      why_slower(best, other, 64, cluster),
      "+45.0 %, 4.5 s more: 5 s more in tensor sums: they cross nodes, for tp is more than the devices of a node");
  other.plan = {.tensor = 3, .data = 8, .micro_batch = 1};
  EXPECT_THAT(why_slower(best, other, 64, nodes_of(3, 8)), EndsWith("for tp does not divide the devices of each node"));
  EXPECT_THAT(why_slower(best, other, 64, nodes_of(4, 6)), EndsWith("fewer rows or columns to hide them behind"));
  other.time = {.compute = 8, .tensor = 0, .bubble = 4};
  other.plan = {.pipeline = 8, .data = 8, .micro_batch = 4};
  EXPECT_EQ(why_slower(best, other, 64, cluster),
            "+20.0 %, 2 s more: 3 s more in bubble: 2 microbatches pass 8 stages");
  EXPECT_EQ(why_slower(best, best, 64, cluster), "as fast: within 0.2 %");
}

TEST(PlanReasons, SayWhatWouldHelpWhereAPlanDoesNotFit) {
  constexpr double kMemory = 1024.0 * 1024 * 1024;
  RankedPlan plan{.plan = {.data = 4, .micro_batch = 8}};
  plan.memory = {
      .weights = 10 * kMemory, .gradients = 10 * kMemory, .optimizer = 20 * kMemory, .activations = 60 * kMemory};
  EXPECT_EQ(why_not_fit(plan, 72 * kMemory),
            "needs 100 GiB of 72 GiB, 60 GiB of them activations; recomputation or smaller microbatches or sequence "
            "parallelism would help");
  plan.memory.activations = 0;
  plan.memory.optimizer = 90 * kMemory;
  EXPECT_EQ(why_not_fit(plan, 72 * kMemory),
            "needs 110 GiB of 72 GiB, 90 GiB of them optimizer; a sharded optimizer (zero=1) would help");
}

TEST(PlanReasons, OptionsAreThoseOfPretrainGpt) {
  const auto options = [](const char* plan) {
    return join(program_options(parse_parallel_plan(plan).or_throw(), 64), " ");
  };
  EXPECT_EQ(options("dp=4,mbs=2"), "--micro-batch-size 2 --global-batch-size 64");
  EXPECT_EQ(options("tp=2,sp,cp=2,pp=4,schedule=interleaved,chunks=3,dp=2,mbs=1,zero=1,recompute=full"),
            "--micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 2 --sequence-parallel "
            "--context-parallel-size 2 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3 "
            "--use-distributed-optimizer --recompute-granularity full --recompute-method uniform "
            "--recompute-num-layers 1");
  EXPECT_THAT(options("pp=4,first=1,last=0,mbs=1"),
              testing::HasSubstr("--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 0"));
  EXPECT_EQ(options("pp=2,schedule=zb-v,chunks=2,mbs=1,recompute=3"),
            "--micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3");
}

}  // namespace
}  // namespace tutti::planning
