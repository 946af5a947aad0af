#include "tutti/planning/blocks.h"

#include <gmock/gmock.h>

#include <random>

namespace tutti {
namespace {

using testing::HasSubstr;

// So many blocks that compute for a millisecond per sample and pass, with 1 MB of parameters each.
BlockChain even_chain(int blocks) {
  return {.blocks = std::vector<BlockCost>(std::size_t(blocks), {.forward = {.per_row = 1e-3},
                                                                 .backward = {.per_row = 2e-3},
                                                                 .weight_bytes = 1e6,
                                                                 .trained_bytes = 1e6,
                                                                 .kept_bytes = 1e4,
                                                                 .output_bytes = 1e3}),
          .state_bytes = 2};
}

TEST(BlockPlan, IsReplicasWhereTheNetworkIsFast) {
  const auto plans = plan_blocks(even_chain(4), {.ranks = 4, .batch = 16}).or_throw();
  EXPECT_EQ(to_string(plans[0].plan), "4 replicas");
  EXPECT_NEAR(plans[0].seconds(), 4 * 4 * 3e-3, 1e-12);
}

TEST(BlockPlan, IsStagesWhereAveragesAreSlow) {
  BlockChain chain = even_chain(4);
  chain.sum_bandwidth = 1e6;
  chain.message_bandwidth = 1e9;
  const auto plans = plan_blocks(chain, {.ranks = 4, .batch = 16}).or_throw();
  EXPECT_EQ(to_string(plans[0].plan), "4 stages (blocks 0, 1, 2, 3) x 1 replica, 16 microbatches");
}

TEST(BlockPlan, IsStagesWhereAReplicaDoesNotFit) {
  // All weights take 4 MB; gradients, buckets and a state of two take 4 MB for each block of a stage.
  const auto plans = plan_blocks(even_chain(4), {.ranks = 2, .batch = 4, .memory = 13e6}).or_throw();
  for (const RankedBlockPlan& ranked : plans) EXPECT_EQ(ranked.plan.stages.size(), 2u) << to_string(ranked.plan);
  EXPECT_THAT(to_string(plans[0].plan), HasSubstr("2 stages (blocks 0-1, 2-3) x 1 replica"));
  const auto none = plan_blocks(even_chain(4), {.ranks = 2, .batch = 4, .memory = 10e6});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(to_string(none.error()),
              HasSubstr("no plan fits 9.54 MiB of a rank: \"2 stages (blocks 0-1, 2-3) x 1 replica, 4 microbatches\""));
}

TEST(BlockPlan, ShardsTheOptimizerWhereItsStepIsSlow) {
  BlockChain chain = even_chain(2);
  chain.step_seconds = 1e-6;
  const auto plans = plan_blocks(chain, {.ranks = 2, .batch = 2}).or_throw();
  EXPECT_TRUE(plans[0].plan.shards_optimizer);
  EXPECT_NEAR(plans[0].optimizer, 1, 1e-9);
}

// Where there are too many ways to cut the blocks, a lower bound leaves most of them out.
TEST(BlockPlan, IsTheFastestOfManyWaysToCut) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> seconds(1e-3, 1e-2);
  for (int round = 0; round < 20; ++round) {
    BlockChain chain = even_chain(12);
    for (BlockCost& block : chain.blocks)
      block.forward.per_row = seconds(random), block.backward.per_row = seconds(random);
    chain.sum_start = 100;  // so that no plan has replicas
    const auto plans = plan_blocks(chain, {.ranks = 5, .batch = 10}).or_throw();
    double least = 1e9;  // of the 330 ways
    for (int a = 1; a < 12; ++a)
      for (int b = a + 1; b < 12; ++b)
        for (int c = b + 1; c < 12; ++c)
          for (int d = c + 1; d < 12; ++d)
            for (const int microbatches : {1, 2, 5, 10}) {
              const BlockPlan plan{.microbatches = microbatches, .stages = {{0, a}, {a, b}, {b, c}, {c, d}, {d, 12}}};
              least = std::min(least, evaluate(chain, plan, 10).seconds());
            }
    EXPECT_DOUBLE_EQ(plans[0].seconds(), least);
  }
}

TEST(BlockPlan, GivesTheLargestBlockAStageOfItsOwn) {
  BlockChain chain = even_chain(5);
  chain.blocks[1].forward.per_row = 0.1;
  chain.sum_start = 100;  // so that no plan has replicas
  const auto plans = plan_blocks(chain, {.ranks = 3, .batch = 8}).or_throw();
  EXPECT_THAT(to_string(plans[0].plan), HasSubstr("3 stages (blocks 0, 1, 2-4)"));
}

// Every plan of random chains, compared with the first.
TEST(BlockPlan, NoOtherPlanIsFaster) {
  std::mt19937 random(3);
  const auto figure = [&](double most) { return most * double(random() % 1000) / 1000; };
  for (int round = 0; round < 100; ++round) {
    BlockChain chain{.sum_start = figure(1e-3),
                     .sum_bandwidth = 1e6 + figure(1e9),
                     .message_start = figure(1e-3),
                     .message_bandwidth = 1e6 + figure(1e9),
                     .step_seconds = figure(1e-8),
                     .state_bytes = figure(2)};
    const int blocks = 1 + int(random() % 6), ranks = 1 + int(random() % 4);
    for (int i = 0; i < blocks; ++i)
      chain.blocks.push_back({.forward = {figure(1e-3), figure(1e-3)},
                              .backward = {figure(1e-3), figure(1e-3)},
                              .weight_bytes = 1e6,
                              .trained_bytes = figure(1e6),
                              .kept_bytes = figure(1e4),
                              .output_bytes = figure(1e4)});
    const auto plans = plan_blocks(chain, {.ranks = ranks, .batch = 12}).or_throw();
    // A cut is a set of the places between blocks.
    for (unsigned cuts = 0; cuts < 1u << (blocks - 1); ++cuts) {
      BlockPlan plan;
      for (int i = 0; i < blocks; ++i) {
        if (i == 0 || (cuts >> (i - 1) & 1)) plan.stages.push_back({i, i});
        plan.stages.back().end = i + 1;
      }
      if (ranks % int(plan.stages.size()) != 0) continue;
      plan.replicas = ranks / int(plan.stages.size());
      for (plan.microbatches = 1; plan.microbatches <= 12; ++plan.microbatches) {
        if (!check(plan, blocks, ranks, 12).ok()) continue;
        EXPECT_LE(plans[0].seconds(), evaluate(chain, plan, 12).seconds() + 1e-12) << to_string(plan);
      }
    }
  }
}

TEST(BlockPlan, OfManyBlocksBalancesTheStages) {
  const auto plans = plan_blocks(even_chain(64), {.ranks = 8, .batch = 8, .memory = 100e6}).or_throw();
  EXPECT_EQ(plans[0].plan.stages.size(), 8u);
  for (const LayerRange& stage : plans[0].plan.stages) EXPECT_EQ(stage.size(), 8);
}

TEST(BlockPlan, KeepsBlocksThatShareParametersTogether) {
  BlockChain chain = even_chain(4);
  chain.sum_start = 100;  // so that no plan has replicas
  chain.together = {{0, 3}};
  const auto plans = plan_blocks(chain, {.ranks = 2, .batch = 8}).or_throw();
  for (const RankedBlockPlan& ranked : plans)
    if (ranked.plan.stages.size() > 1) {
      EXPECT_THAT(to_string(ranked.plan), HasSubstr("2 stages (blocks 0-2, 3)"));
    }
}

TEST(BlockPlan, LeavesEachMicrobatchTheRowsItNeeds) {
  BlockChain chain = even_chain(2);
  chain.least_rows = 2;
  for (const RankedBlockPlan& ranked : plan_blocks(chain, {.ranks = 2, .batch = 8}).or_throw())
    EXPECT_GE(8 / ranked.plan.replicas / ranked.plan.microbatches, 2) << to_string(ranked.plan);
}

TEST(BlockPlan, OfManyMicrobatchesTakesThatManyTurns) {
  const BlockChain chain = even_chain(4);
  const BlockPlan plan{.microbatches = 100, .stages = {{0, 1}, {1, 2}, {2, 4}}};
  // The last stage is the slowest, two blocks; the others work before its first and after its last microbatch.
  EXPECT_NEAR(evaluate(chain, plan, 100).pipeline, 100 * 2 * 3e-3 + 2 * 3e-3, 1e-9);
}

TEST(BlockPlan, ThatDoesNotFitTheModelIsRefused) {
  const BlockPlan plan{.replicas = 2, .microbatches = 2, .stages = {{0, 2}, {2, 4}}};
  EXPECT_TRUE(check(plan, 4, 4, 8).ok());
  EXPECT_THAT(to_string(check(plan, 5, 4, 8).error()), HasSubstr("is for 4 blocks; the model has 5"));
  EXPECT_THAT(to_string(check(plan, 4, 3, 8).error()), HasSubstr("is for 4 ranks; there are 3"));
  EXPECT_THAT(to_string(check(plan, 4, 4, 6).error()),
              HasSubstr("into 4 parts, but the batch has 6 samples; choose a multiple of 4"));
  EXPECT_THAT(to_string(check({.stages = {{0, 1}, {2, 4}}}, 4, 2, 2).error()),
              HasSubstr("has a stage of the blocks [2, 4) after block 0"));
  EXPECT_THAT(to_string(check({.shards_optimizer = true, .stages = {{0, 4}}}, 4, 1, 2).error()),
              HasSubstr("shards the optimizer over one replica"));
  EXPECT_THAT(to_string(plan_blocks({}, {}).error()), HasSubstr("a model without blocks"));
  EXPECT_THAT(to_string(plan_blocks(even_chain(1), {.ranks = 3, .batch = 4}).error()),
              HasSubstr("a batch of 4 cannot be divided among 3 ranks of a model of 1 block"));
}

}  // namespace
}  // namespace tutti
