// The end of a step on a grid of threads: sharded and whole optimizers make the same weights, and an infinity that one
// rank has leaves the step out on all.
#include "tutti/models/gpt/grid_step.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <limits>

#include "tests/harness/ranks.h"
#include "tutti/training/leveled_timers.h"

namespace tutti::gpt {
namespace {

Options options_of(bool sharded, bool sequence_parallel) {
  Options options;
  auto& shape = options.model;
  shape.layers = 2;
  shape.hidden = 16;
  shape.heads = shape.query_groups = 4;
  shape.head_size = 4;
  shape.ffn = 24;
  shape.vocabulary = 11;  // of 128 x 2 rows
  shape.bias = false;     // the gradient of a key's bias is 0, but for roundings, which Adam makes large
  shape.sequence_length = shape.positions = 6;
  options.model.precision = Precision::kF64;
  options.model.hidden_dropout = options.model.attention_dropout = 0;
  options.batches.micro_batch = 3;
  options.batches.global_batch = 0;
  options.report.zero_gradients = true;
  options.optimizer.learning_rate.most = 0.1;
  options.optimizer.clip_grad = 0.01;
  options.parallel.grid.tensor = 2;
  options.parallel.sequence_parallel = sequence_parallel;
  options.parallel.shard_optimizer = sharded;
  return for_world(options, 4).or_throw();
}

struct Steps {
  std::vector<StepOutcome> outcomes;
  std::vector<at::Tensor> weights;
};

// On two tensor and two data parallel ranks: two steps, and between them one in which rank 3 has an infinity.
std::vector<Steps> train(const Options& options, double loss_scale = 8) {
  std::vector<Steps> found(4);
  const auto outcomes = test::run_threads(4, [&](Group& world) {
    const Parallel groups = make_parallel(world, options);
    const auto model = make_model(groups, options);
    GridStep weights(groups, options, model);
    LeveledTimers timers(0);
    Steps& mine = found[std::size_t(world.rank())];
    for (int step = 0; step < 3; ++step) {
      weights.zero_grad();
      const auto words = [&](int by) {
        return ((at::arange(18, at::kLong) + by + 5 * groups.data.rank() + step).remainder(11)).view({6, 3});
      };
      model->forward(0, {.tokens = words(0), .targets = words(3)}, {}).mul(loss_scale).backward();
      for (const auto& parameter : weights.parameters())
        if (step == 1 && world.rank() == 3 && parameter.name.ends_with("1.mlp.linear_fc2.weight"))
          parameter.tensor.mutable_grad()[0][0] = std::numeric_limits<double>::infinity();
      mine.outcomes.push_back(
          weights.finish(0.1, 0.1 * step, timers, {.loss_scale = loss_scale, .skips_infinity = true}));
    }
    for (const auto& parameter : weights.parameters()) mine.weights.push_back(parameter.tensor.detach().clone());
  });
  EXPECT_EQ(test::describe(outcomes), "");
  return found;
}

TEST(GridStep, AShardedOptimizerMakesTheSameWeights) {
  for (const bool sequence_parallel : {false, true}) {
    const auto whole = train(options_of(false, sequence_parallel)),
               sharded = train(options_of(true, sequence_parallel));
    for (std::size_t rank = 0; rank < 4; ++rank) {
      for (std::size_t i = 0; i < whole[rank].weights.size(); ++i)
        EXPECT_LT((whole[rank].weights[i] - sharded[rank].weights[i]).abs().max().item<double>(), 1e-13) << i;
      for (const std::size_t step : {0, 2}) {
        const auto &expected = whole[rank].outcomes[step], &outcome = sharded[rank].outcomes[step];
        EXPECT_NEAR(outcome.gradient_norm, expected.gradient_norm, 1e-14);
        EXPECT_NEAR(outcome.gradient_norm, whole[0].outcomes[step].gradient_norm, 1e-14) << "the same on every rank";
        EXPECT_EQ(outcome.zero_gradients, expected.zero_gradients);
        EXPECT_EQ(outcome.zero_gradients, sharded[0].outcomes[step].zero_gradients);
        EXPECT_FALSE(outcome.skipped);
      }
    }
  }
}

TEST(GridStep, AnInfinityOfOneRankSkipsTheStepOnAll) {
  for (const bool sharded : {false, true})
    for (const Steps& rank : train(options_of(sharded, true))) {
      EXPECT_TRUE(rank.outcomes[1].skipped);
      for (const at::Tensor& weight : rank.weights) EXPECT_TRUE(weight.isfinite().all().item<bool>());
    }
}

// Of the grid of 2 x 2 ranks, rank 3 averages with rank 1.
TEST(GridStep, ANaNOfShardedWeightsIsNamedWithItsRankInTheWorld) {
  Options options = options_of(false, false);
  options.parallel.fully_shard = true;
  std::vector<std::string> said(4);
  const auto outcomes = test::run_threads(4, [&](Group& world) {
    const Parallel groups = make_parallel(world, options);
    const auto model = make_model(groups, options);
    GridStep weights(groups, options, model);
    LeveledTimers timers(0);
    weights.zero_grad();
    for (const auto& parameter : weights.parameters())
      if (world.rank() == 3 && parameter.name.ends_with("1.mlp.linear_fc2.weight"))
        parameter.tensor.register_hook(
            [](const at::Tensor& gradient) { return gradient * std::numeric_limits<double>::quiet_NaN(); });
    const auto words = [&](int by) { return ((at::arange(18, at::kLong) + by).remainder(11)).view({6, 3}); };
    weights.forward(0, {.tokens = words(0), .targets = words(3)}, {}).backward();
    try {
      weights.finish(0.1, 0, timers);
    } catch (const Exception& refused) {
      said[std::size_t(world.rank())] = refused.error().detail;
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
  for (const int rank : {1, 3}) EXPECT_NE(said[std::size_t(rank)].find(" on rank 3"), std::string::npos) << said[1];
  for (const int rank : {0, 2}) EXPECT_NE(said[std::size_t(rank)].find("another part of the model"), std::string::npos);
}

// The sum of their squares is no f64.
TEST(GridStep, LargeGradientsHaveANorm) {
  for (const bool sharded : {false, true}) {
    const auto options = options_of(sharded, false);
    const Steps usual = train(options)[0], large = train(options, 0x1p600)[0];
    for (const std::size_t step : {0, 2}) {
      EXPECT_FALSE(large.outcomes[step].skipped) << step;
      EXPECT_NEAR(large.outcomes[step].gradient_norm, usual.outcomes[step].gradient_norm, 1e-12) << step;
    }
    for (std::size_t i = 0; i < usual.weights.size(); ++i)
      EXPECT_LT((usual.weights[i] - large.weights[i]).abs().max().item<double>(), 1e-12) << i;
  }
}

}  // namespace
}  // namespace tutti::gpt
