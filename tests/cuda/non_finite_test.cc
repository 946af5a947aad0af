// NaNs, infinities and huge gradients on a GPU: what is reported, and which weights stay as they were.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/training.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/module_state.h"

namespace tutti::test {
namespace {

TEST(TrainingOnGpus, ANaNIsNamed) {
  expect_in_world([](Group& world) {
    for (const FiniteCheck check_kind : {FiniteCheck::kInReduction, FiniteCheck::kReport}) {
      nn::Sequential net = make_net(gpu_of(world));
      DataParallel ddp(net, world, {.finite_check = check_kind});
      at::Tensor x = at::randn({8, 20}, at::kDouble);
      if (world.rank() == 1) x[3][4] = std::numeric_limits<double>::quiet_NaN();
      ddp.forward(x.to(gpu_of(world))).sum().backward();
      const std::string sentence = sentence_of([&] { ddp.finish(); });
      check(ddp.non_finite().has_value(), "no NaN was found");
      if (check_kind == FiniteCheck::kReport)
        check(ddp.non_finite()->rank == 1, "the NaN is said to be of rank ", ddp.non_finite()->rank);
      else
        expect_words(sentence, "NaN");
    }
  });
}

TEST(TrainingOnGpus, AStepOfANaNLeavesAllWeightsAsTheyWere) {
  expect_in_world([](Group& world) {
    const auto check_step = [&](auto& model, auto& optimizer, const auto& weights) {
      const Tensors before = on_cpu(weights());
      at::Tensor x = at::randn({8, 20}, at::kDouble);
      if (world.rank() == 1) x[3][4] = std::numeric_limits<double>::quiet_NaN();
      model.forward(x.to(gpu_of(world))).sum().backward();
      const std::string sentence = sentence_of([&] { optimizer.step(); });
      expect_words(sentence, "the gradient of 0.weight has a NaN or an infinity on rank 1");
      expect_words(sentence, "the weights are as they were");
      check_close(on_cpu(weights()), before, "weights", 0);
    };
    for (const auto& [stage, overlap] : {std::pair(1, Overlap::kAuto), {1, Overlap::kOff}, {2, Overlap::kAuto}}) {
      nn::Sequential net = make_net(gpu_of(world));
      DataParallel ddp(net, world, {.overlap = overlap, .finite_check = FiniteCheck::kInReduction});
      ShardedOptimizer optimizer(ddp.reducer(), AdamWOptions{}, {.stage = stage});
      check_step(ddp, optimizer, [&] { return net->parameters(); });
    }
    nn::Sequential net(nn::Linear(20, 32), nn::Tanh(), nn::Linear(32, 10));
    net->to(gpu_of(world), at::kDouble);
    FullySharded sharded(net, world);
    ShardedOptimizer optimizer(sharded, AdamWOptions{});
    check_step(sharded, optimizer, [&] {
      std::vector<at::Tensor> shards;
      for (const StatePart& part : sharded.own_state())
        if (part.values.numel() > 0) shards.push_back(part.values);
      return shards;
    });
  });
}

TEST(TrainingOnGpus, ALossScalerSkipsTheStepOfAnInfinity) {
  expect_in_world([](Group& world) {
    nn::Sequential net(nn::Linear(4, 2));
    net->to(gpu_of(world));
    DataParallel ddp(net, world, {.finite_check = FiniteCheck::kReport});
    LossScaler scaler(ddp.reducer(), {.initial_scale = 1024});
    Sgd optimizer(*net);
    const auto step = [&](float factor) {
      ddp.zero_grad();
      scaler.scale(ddp.forward(at::ones({1, 4}, gpu_of(world))).sum() * factor).backward();
      ddp.finish();
      const bool stepped = scaler.step(optimizer);
      scaler.update();
      return stepped;
    };
    check(!step(world.rank() == 1 ? std::numeric_limits<float>::infinity() : 1), "a step with an infinity");
    check(scaler.scale() == 512, "the scale is ", scaler.scale());
    check(step(1), "a step without one");
    check_close(on_cpu({net->parameters()[0].grad()}), {at::ones({2, 4})}, "the gradient", 1e-6);
  });
}

TEST(TrainingOnGpus, NormsOfHugeGradientsAreFinite) {
  expect_in_world(
      [](Group& world) {
        const auto norm_on = [](at::Device device, double value) {
          at::Tensor weight = at::zeros({10}, at::kDouble).to(device).requires_grad_();
          weight.mutable_grad() = at::full({10}, value, at::kDouble).to(device);
          const std::vector<NamedTensor> parameters = {{"weight", weight}};
          return clip_grad_norm(parameters, 1);
        };
        for (const double value : {0.25, 1e200, std::numeric_limits<double>::infinity()}) {
          const GradientNorm mine = norm_on(gpu_of(world), value), expected = norm_on(kCpu, value);
          check(mine.non_finite == expected.non_finite, "of ", value, ": ", mine.non_finite);
          check(!expected.finite() || std::abs(mine.norm / expected.norm - 1) < 1e-12, "of ", value, ": ", mine.norm);
        }
      },
      1);
}

}  // namespace
}  // namespace tutti::test
