// A model that is divided by blocks equals one process that trains it with LibTorch's own optimizer.
#include "tutti/parallel/parallelize.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <mutex>
#include <optional>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

using test::check;

constexpr std::int64_t kBatch = 12;
constexpr int kSteps = 4;

torch::nn::Sequential make_blocks(std::uint64_t seed = 1) {
  static std::mutex one_seed;  // for all threads
  const std::lock_guard lock(one_seed);
  torch::manual_seed(seed);
  torch::nn::Sequential model(torch::nn::Linear(6, 9), torch::nn::Tanh(), torch::nn::Linear(9, 7), torch::nn::Tanh(),
                              torch::nn::Linear(7, 3));
  model->to(torch::kDouble);
  return model;
}
at::Tensor inputs_of(int step) {
  return at::sin(at::arange(kBatch * 6, at::kDouble) * 0.37 + step).reshape({kBatch, 6});
}
at::Tensor targets_of(int step) { return at::cos(at::arange(kBatch * 3, at::kDouble) + step).reshape({kBatch, 3}); }
at::Tensor mean_loss(const at::Tensor& output, const at::Tensor& target) { return torch::mse_loss(output, target); }

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
};

std::vector<at::Tensor> copied(const torch::nn::Sequential& model) {
  std::vector<at::Tensor> weights;
  for (const auto& parameter : model->parameters()) weights.push_back(parameter.detach().clone());
  return weights;
}

Trained trained_alone(double max_norm) {
  auto model = make_blocks();
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(1e-2));
  Trained alone;
  for (int step = 0; step < kSteps; ++step) {
    adam.zero_grad();
    const auto loss = mean_loss(model->forward(inputs_of(step)), targets_of(step));
    loss.backward();
    if (max_norm > 0) torch::nn::utils::clip_grad_norm_(model->parameters(), max_norm);
    adam.step();
    alone.losses.push_back(loss.item<double>());
  }
  alone.weights = copied(model);
  return alone;
}

void expect_equal(const Trained& is, const Trained& should, const std::string& where) {
  for (std::size_t i = 0; i < should.losses.size(); ++i)
    check(std::abs(is.losses[i] - should.losses[i]) < 1e-10, where, ": loss ", is.losses[i], ", is ", should.losses[i],
          " alone");
  for (std::size_t i = 0; i < should.weights.size(); ++i)
    check(at::allclose(is.weights[i], should.weights[i], 1e-9, 1e-11), where, ": weight ", i);
}

// All ways to cut the five blocks.
std::vector<BlockPlan> plans_of(int ranks) {
  std::vector<BlockPlan> plans;
  for (unsigned cuts = 0; cuts < 16; ++cuts) {
    BlockPlan plan;
    for (int i = 0; i < 5; ++i) {
      if (i == 0 || (cuts >> (i - 1) & 1)) plan.stages.push_back({i, i});
      plan.stages.back().end = i + 1;
    }
    if (ranks % int(plan.stages.size()) != 0) continue;
    plan.replicas = ranks / int(plan.stages.size());
    for (plan.microbatches = 1; plan.microbatches <= 3; ++plan.microbatches)
      if (kBatch % (plan.replicas * plan.microbatches) == 0) plans.push_back(plan);
  }
  return plans;
}

class DividedOn : public testing::TestWithParam<int> {};

TEST_P(DividedOn, RanksEqualsOneProcess) {
  for (const double max_norm : {0.0, 0.05}) {
    const Trained alone = trained_alone(max_norm);
    const auto outcomes = test::run_threads(GetParam(), [&](Group& world) {
      at::set_num_threads(1);
      for (BlockPlan plan : plans_of(world.size()))
        for (const bool shards : {false, true}) {
          // A stage of a Tanh alone has nothing to shard.
          const auto trains = [](const LayerRange& stage) { return stage.size() > 1 || stage.begin % 2 == 0; };
          if (shards && (plan.replicas == 1 || !std::all_of(plan.stages.begin(), plan.stages.end(), trains))) continue;
          plan.shards_optimizer = shards;
          const auto model = make_blocks(std::uint64_t(1 + world.rank()));  // rank 0's weights count
          DividedTraining training(world, blocks_of(model), mean_loss, AdamOptions{.lr = 1e-2}, plan,
                                   {.clip_grad_norm = max_norm});
          Trained divided;
          for (int step = 0; step < kSteps; ++step)
            divided.losses.push_back(training.step(inputs_of(step), targets_of(step)));
          training.gather_weights();
          divided.weights = copied(model);
          expect_equal(divided, alone, to_string(plan));
        }
    });
    EXPECT_EQ(test::describe(outcomes), "") << "clipped at " << max_norm;
  }
}
INSTANTIATE_TEST_SUITE_P(, DividedOn, testing::Values(1, 2, 3, 4));

TEST(Parallelize, MeasuresChoosesAndTrains) {
  const Trained alone = trained_alone(0);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const auto model = make_blocks();
    auto training =
        parallelize(world, blocks_of(model), mean_loss, AdamOptions{.lr = 1e-2}, inputs_of(0), targets_of(0));
    check(training.plan().ranks() == 2, to_string(training.plan()));
    Trained divided;
    for (int step = 0; step < kSteps; ++step)
      divided.losses.push_back(training.step(inputs_of(step), targets_of(step)));
    training.gather_weights();
    divided.weights = copied(model);
    expect_equal(divided, alone, to_string(training.plan()));
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Parallelize, MeasuresWhatBlocksHave) {
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto model = make_blocks();
    model->push_back(torch::nn::BatchNorm1d(3));
    model->to(torch::kDouble);
    const auto before = copied(model);
    const BlockChain chain =
        measure_blocks(world, blocks_of(model), mean_loss, AdamOptions{}, inputs_of(0), targets_of(0));
    check(chain.blocks.size() == 6 && chain.blocks[0].trained_bytes == 8 * (6 * 9 + 9) &&
              chain.blocks[1].weight_bytes == 0 && chain.blocks[0].output_bytes == 9 * 8,
          "sizes");
    for (const BlockCost& block : chain.blocks)
      check(block.forward.of(6) > 0 && block.backward.of(6) > 0 && block.kept_bytes > 0, "figures");
    check(chain.least_rows == 2, "batch normalisation needs two samples");
    check(chain.state_bytes >= 2 && chain.state_bytes < 2.1, "Adam keeps two numbers: ", chain.state_bytes);
    check(chain.sum_start > 0 && chain.message_start > 0, "network");
    const auto after = copied(model);
    for (std::size_t i = 0; i < before.size(); ++i) check(before[i].equal(after[i]), "weight ", i, " has changed");
    for (const auto& parameter : model->parameters()) check(!parameter.grad().defined(), "a gradient is left");
    for (const auto& buffer : model->named_buffers())
      if (buffer.key().find("running_mean") != std::string::npos)
        check(buffer.value().abs().sum().item<double>() == 0, "statistics have changed");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Blocks of several kinds against one process. A whole batch is one microbatch here, so that batch normalisation sees
// the same samples.
template <class Make>
void expect_as_alone(const Make& make, const at::Tensor& inputs, const BlockPlan& plan) {
  auto alone = make();
  torch::optim::SGD sgd(alone->parameters(), torch::optim::SGDOptions(0.1));
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    const auto loss = mean_loss(alone->forward(inputs.clone()), targets_of(step));
    loss.backward();
    sgd.step();
    losses.push_back(loss.template item<double>());
  }
  const auto outcomes = test::run_threads(plan.ranks(), [&](Group& world) {
    const auto model = make();
    DividedTraining training(world, blocks_of(model), mean_loss, SgdOptions{.lr = 0.1}, plan);
    for (int step = 0; step < 3; ++step) {
      const double loss = training.step(inputs.clone(), targets_of(step));
      check(std::abs(loss - losses[std::size_t(step)]) < 1e-10, to_string(plan), ": loss ", loss, ", is ",
            losses[std::size_t(step)], " alone");
    }
    training.gather_weights();
    const auto named = model->named_parameters(), expected = alone->named_parameters();
    for (const auto& parameter : named)
      check(at::allclose(parameter.value(), expected[parameter.key()], 1e-9, 1e-11), to_string(plan), ": ",
            parameter.key());
    for (const auto& buffer : model->named_buffers())
      check(at::allclose(buffer.value(), alone->named_buffers()[buffer.key()]), to_string(plan), ": ", buffer.key());
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

torch::nn::Sequential seeded(torch::nn::Sequential model) {
  model->to(torch::kDouble);
  double at = 0;
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    parameter.copy_(at::sin(at::arange(parameter.numel(), at::kDouble) + ++at).reshape(parameter.sizes()) * 0.3);
  }
  return model;
}

TEST(Parallelize, BlocksThatNormaliseBatchesWorkInPlaceOrAreFrozen) {
  const auto make = [] {
    auto model = seeded(torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
                                              torch::nn::BatchNorm1d(5), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
                                              torch::nn::Linear(5, 4), torch::nn::Linear(4, 3)));
    for (auto& parameter : model[4]->parameters()) parameter.requires_grad_(false);
    return model;
  };
  for (const auto& stages :
       {std::vector<LayerRange>{{0, 6}}, {{0, 1}, {1, 6}}, {{0, 3}, {3, 6}}, {{0, 4}, {4, 5}, {5, 6}}})
    expect_as_alone(make, inputs_of(0), {.stages = stages});
}

TEST(Parallelize, AModelOfTokensWithNames) {
  const auto make = [] {
    return seeded(torch::nn::Sequential({{"words", torch::nn::AnyModule(torch::nn::Embedding(7, 4))},
                                         {"out", torch::nn::AnyModule(torch::nn::Linear(4, 3))}}));
  };
  const auto tokens = at::arange(kBatch) % 7;
  for (const BlockPlan& plan :
       {BlockPlan{.stages = {{0, 1}, {1, 2}}}, BlockPlan{.replicas = 2, .microbatches = 3, .stages = {{0, 2}}},
        BlockPlan{.replicas = 2, .microbatches = 2, .stages = {{0, 1}, {1, 2}}}})
    expect_as_alone(make, tokens, plan);
}

TEST(Parallelize, ReplicasHaveTheSameBuffersAfterEachStep) {
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const auto model = seeded(torch::nn::Sequential(torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 3)));
    DividedTraining training(world, blocks_of(model), mean_loss, SgdOptions{.lr = 0.1},
                             {.replicas = 2, .stages = {{0, 2}}});
    training.step(inputs_of(0), targets_of(0));
    const auto mean = model->named_buffers()["0.running_mean"];
    check(mean.abs().sum().item<double>() > 0, "no statistics");
    auto sum = mean.clone();
    all_reduce(world, std::span(sum.data_ptr<double>(), std::size_t(sum.numel())), ReduceOp::kSum);
    check(at::allclose(sum, 2 * mean), "the ranks have different statistics");
    training.evaluate(inputs_of(1), targets_of(1));
    check(model->is_training(), "evaluate() has left the model in evaluation mode");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Parallelize, ABlockThatThrowsInAStepEndsItOnEveryRank) {
  for (const BlockPlan& plan : {BlockPlan{.replicas = 2, .stages = {{0, 5}}}, BlockPlan{.stages = {{0, 2}, {2, 5}}}}) {
    std::vector<std::string> texts(2);
    test::run_threads(2, [&](Group& world) {
      auto blocks = blocks_of(make_blocks());
      if (world.rank() == 1)
        blocks[2].forward = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("lost"); };
      DividedTraining training(world, blocks, mean_loss, AdamOptions{}, plan);
      try {
        training.step(inputs_of(0), targets_of(0));
      } catch (const Exception& error) {
        texts[std::size_t(world.rank())] = error.what();
      }
    });
    EXPECT_THAT(texts, testing::Each(testing::HasSubstr("lost"))) << to_string(plan);
  }
}

TEST(Parallelize, NeverShardsARuleOfMatrices) {
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto model = make_blocks();
    for (auto& parameter : model->parameters())
      if (parameter.dim() == 1) parameter.requires_grad_(false);
    auto training =
        parallelize(world, blocks_of(model), mean_loss, MuonOptions{.lr = 1e-2}, inputs_of(0), targets_of(0));
    check(!training.plan().shards_optimizer, to_string(training.plan()));
    training.step(inputs_of(0), targets_of(0));
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Parallelize, EvaluatesWithoutTraining) {
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto model = make_blocks(), other = make_blocks();
    DividedTraining training(world, blocks_of(model), mean_loss, AdamOptions{},
                             {.microbatches = 2, .stages = {{0, 2}, {2, 5}}});
    const double loss = training.evaluate(inputs_of(0), targets_of(0));
    const double expected = mean_loss(other->forward(inputs_of(0)), targets_of(0)).item<double>();
    check(std::abs(loss - expected) < 1e-12, loss, ", is ", expected);
    check(training.evaluate(inputs_of(0), targets_of(0)) == loss, "the weights have changed");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Parallelize, ACheckpointContinuesUnderAnotherPlan) {
  const Trained alone = trained_alone(0);
  const test::TemporaryFolder folder;
  const auto train = [&](const BlockPlan& plan, int from, int to) {
    const auto outcomes = test::run_threads(plan.ranks(), [&](Group& world) {
      const auto model = make_blocks(std::uint64_t(from + 1));
      DividedTraining training(world, blocks_of(model), mean_loss, AdamOptions{.lr = 1e-2}, plan);
      Checkpointer checkpoints(world, {.folder = folder.path()});
      checkpoints.add("", training);
      check(checkpoints.resume().step == from, "resumed elsewhere");
      for (int step = from; step < to; ++step) {
        const double loss = training.step(inputs_of(step), targets_of(step));
        check(std::abs(loss - alone.losses[std::size_t(step)]) < 1e-10, to_string(plan), ": loss of step ", step);
        (void)checkpoints.after(step + 1);
      }
      checkpoints.finish();
    });
    EXPECT_EQ(test::describe(outcomes), "");
  };
  train({.stages = {{0, 2}, {2, 5}}}, 0, 2);
  train({.replicas = 3, .shards_optimizer = true, .stages = {{0, 5}}}, 2, 3);
  train({.stages = {{0, 5}}}, 3, 4);
}

TEST(Parallelize, AGradientThatIsNotFiniteIsAnErrorOnEveryRank) {
  for (const BlockPlan& plan : {BlockPlan{.stages = {{0, 2}, {2, 5}}}, BlockPlan{.replicas = 2, .stages = {{0, 5}}},
                                BlockPlan{.replicas = 2, .shards_optimizer = true, .stages = {{0, 5}}}}) {
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      const auto model = make_blocks();
      DividedTraining training(world, blocks_of(model), mean_loss, AdamOptions{.lr = 1e-2}, plan);
      const auto before = copied(model);
      auto inputs = inputs_of(0);
      inputs[kBatch - 1][0] = std::numeric_limits<double>::infinity();
      std::optional<Error> found;
      try {
        training.step(inputs, targets_of(0));
      } catch (const Exception& error) {
        found = error.error();
      }
      check(found && found->code == Code::kNonFinite &&
                found->detail.find("the gradient of 0.weight") != std::string::npos,
            to_string(plan), ": ", found ? to_string(*found) : "no error");
      const auto after = copied(model);
      for (std::size_t i = 0; i < before.size(); ++i)
        check(before[i].equal(after[i]), to_string(plan), ": weight ", i, " has changed");
      (void)training.step(inputs_of(0), targets_of(0));  // the group still works
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

TEST(Parallelize, WhatCannotBeDividedIsRefusedOnEveryRank) {
  const auto refusal = [&](const std::function<void(Group&)>& act) {
    std::vector<std::string> texts(2);
    test::run_threads(2, [&](Group& world) {
      try {
        act(world);
      } catch (const Exception& error) {
        texts[std::size_t(world.rank())] = error.what();
      }
    });
    return texts[0] + "\n" + texts[1];
  };
  const auto on_both = [](const std::string& words) { return testing::ContainsRegex(words + "(.|\n)*" + words); };
  const BlockPlan two_stages{.stages = {{0, 2}, {2, 5}}};
  EXPECT_THAT(refusal([&](Group& world) {
                auto blocks = blocks_of(make_blocks());
                blocks[4].module = blocks[0].module;
                DividedTraining(world, blocks, mean_loss, AdamOptions{}, two_stages);
              }),
              on_both("block 4 shares weight with 0.weight of another stage"));
  EXPECT_THAT(refusal([&](Group& world) {
                DividedTraining training(world, blocks_of(make_blocks()), mean_loss, AdamOptions{}, two_stages);
                training.step(inputs_of(0), targets_of(0).narrow(0, 0, 5));
              }),
              on_both("a batch has 12 inputs and 5 targets"));
  EXPECT_THAT(refusal([&](Group& world) {
                DividedTraining training(world, blocks_of(make_blocks()), mean_loss, AdamOptions{}, two_stages);
                const std::int64_t samples = world.rank() == 0 ? 12 : 6;
                training.step(inputs_of(0).narrow(0, 0, samples), targets_of(0).narrow(0, 0, samples));
              }),
              on_both("samples is 12 on rank 0, but 6 on rank 1"));
  EXPECT_THAT(refusal([&](Group& world) {
                DividedTraining(world, blocks_of(make_blocks()), mean_loss, AdamOptions{.lr = world.rank() + 1.0},
                                two_stages);
              }),
              on_both("rule is"));
  EXPECT_THAT(refusal([&](Group& world) {
                auto blocks = blocks_of(make_blocks());
                if (world.rank() == 1) blocks[3].forward = [](const at::Tensor& x) { return x.sum(); };
                measure_blocks(world, blocks, mean_loss, AdamOptions{}, inputs_of(0), targets_of(0));
              }),
              on_both("rank 1: block 3 made f64"));
}

}  // namespace
}  // namespace tutti
