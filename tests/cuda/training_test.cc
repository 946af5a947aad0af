// Data parallel training, optimizers, recomputation and checkpoints on a GPU give what they give on the CPU. The GPU is
// a real one with TUTTI_REAL_GPUS, else the doubles of the CUDA runtime and of LibTorch's device.
#include "tests/cuda/training.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/checkpoints.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/recompute.h"
#include "tutti/tensor/module_state.h"

namespace tutti::test {
namespace {

TEST(TrainingOnGpus, EveryRuleStepsAsOnTheCpu) {
  const std::vector<UpdateRule> rules = {
      SgdOptions{.lr = 0.1},
      SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
      SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true},
      AdamOptions{.weight_decay = 0.01},
      AdamOptions{.amsgrad = true},
      AdamWOptions{},
      AdagradOptions{.lr_decay = 0.1, .initial_accumulator_value = 0.2},
      LionOptions{.weight_decay = 0.1},
  };
  expect_in_world([&](Group& world) {
    for (const UpdateRule& rule : rules) {
      const Training training{.rule = rule};
      check_close(train(world, gpu_of(world), training), train(world, kCpu, training), to_string(rule));
    }
  });
}

TEST(TrainingOnGpus, MuonStepsMatrices) {
  expect_in_world(
      [](Group& world) {
        const auto step = [](at::Device device) {
          at::manual_seed(3);
          const at::Tensor weight = at::randn({12, 20}, at::kDouble).to(device).requires_grad_();
          weight.mutable_grad() = at::randn({12, 20}, at::kDouble).to(device);
          Muon muon({weight});
          muon.step();
          return on_cpu({weight});
        };
        check_close(step(gpu_of(world)), step(kCpu), "Muon", 1e-9);
      },
      1);
}

TEST(TrainingOnGpus, GradientsAreAveragedHoweverTheyArePacked) {
  std::vector<std::pair<std::string, Training>> ways(6);
  ways[0].first = "one by one, in place", ways[0].second.options.in_place_bytes = 0;
  ways[1].first = "packed", ways[1].second.options.in_place_bytes = std::size_t(-1);
  ways[2].first = "views of buckets", ways[2].second.options.gradient_as_bucket_view = true;
  ways[3].first = "within backward()", ways[3].second.options.overlap = Overlap::kOn;
  ways[4].first = "small buckets, within backward()", ways[4].second.options.overlap = Overlap::kOn;
  ways[4].second.options.first_bucket_bytes = 256, ways[4].second.options.bucket_cap_mb = mebibytes(256);
  ways[5].first = "checked on each rank", ways[5].second.options.finite_check = FiniteCheck::kReport;
  for (auto& [name, training] : ways) training.max_norm = 0.5, training.max_value = 0.02;
  expect_in_world(
      [&](Group& world) {
        for (const auto& [name, training] : ways)
          check_close(train(world, gpu_of(world), training), train(world, kCpu, training), name);
      },
      3);
}

TEST(TrainingOnGpus, HooksGetBucketsOfTheDevice) {
  expect_in_world([](Group& world) {
    const auto check_hook = [&](const auto& make_hook, double tolerance) {
      Training training;
      training.options.hook = make_hook();
      const Tensors on_gpu = train(world, gpu_of(world), training);
      training.options.hook = make_hook();
      check_close(on_gpu, train(world, kCpu, training), training.options.hook->name(), tolerance);
    };
    check_hook(bf16_compression, 1e-2);
    check_hook([] { return std::make_shared<PowerSgd>(PowerSgdOptions{.start_step = 2}); }, 1e-9);
  });
}

TEST(TrainingOnGpus, BatchesAreNormalisedOverAllRanks) {
  expect_in_world([](Group& world) {
    const Training training{.syncs_norms = true};
    check_close(train(world, gpu_of(world), training), train(world, kCpu, training), "sync_batch_norms");
  });
}

TEST(TrainingOnGpus, AKilledRankEndsTheStepOfItsPeers) {
  const RankBody body = [](Group& world) {
    Trainee trainee(world, gpu_of(world), {});
    trainee.step();
    kill_after_all(world, 1);
    expect_words(sentence_of([&] { trainee.step(); }), "rank 1");
  };
  const auto outcomes = run_processes(3, body, with_gpus(kStaged));
  for (const int survivor : {0, 2}) EXPECT_EQ(outcomes[std::size_t(survivor)].error, "");
}

TEST(TrainingOnGpus, AnOptimizerFollowsItsModelToAnotherDevice) {
  expect_in_world(
      [](Group& world) {
        const auto train_on = [&](at::Device second) {
          at::manual_seed(9);
          nn::Linear net(5, 3);
          Optimizer optimizer(*net, AdamOptions{});
          for (const at::Device device : {kCpu, second}) {
            net->to(device);
            optimizer.zero_grad();
            net->forward(at::ones({2, 5}, device)).square().sum().backward();
            optimizer.step();
          }
          return on_cpu(net->parameters());
        };
        check_close(train_on(gpu_of(world)), train_on(kCpu), "weights", 1e-6);
      },
      1);
}

TEST(TrainingOnGpus, ModelsThatAreDividedOverGpusInOtherWaysAreRejected) {
  if (const std::string lack = lacks_gpus(7); !lack.empty()) GTEST_SKIP() << lack;
  expect_in_world([](Group& world) {
    nn::Sequential net(nn::Linear(4, 4), nn::Linear(4, 4));
    net->to(at::Device(at::kCUDA, 5));
    if (world.rank() == 0) net[1]->to(at::Device(at::kCUDA, 6));
    expect_words(sentence_of([&] { DataParallel ddp(net, world); }), "on cuda (GPU 2 of the model)");
  });
}

TEST(TrainingOnGpus, AutocastComputesInBf16) {
  expect_in_world([](Group& world) {
    const auto train_on = [&](at::Device device) {
      at::manual_seed(4);
      nn::Sequential net(nn::Linear(20, 32), nn::ReLU(), nn::Linear(32, 10));
      net->to(device);
      DataParallel ddp(net, world, {.autocast = DType::kBF16});
      const at::Tensor out = ddp.forward(at::ones({4, 20}, device));
      check(out.scalar_type() == at::kBFloat16, "the result is ", c10::toString(out.scalar_type()));
      out.sum().backward();
      ddp.finish();
      Tensors gradients;
      for (const at::Tensor& weight : net->parameters()) gradients.push_back(weight.grad());
      return on_cpu(gradients);
    };
    check_close(train_on(gpu_of(world)), train_on(kCpu), "gradients", 1e-2);
  });
}

TEST(TrainingOnGpus, WhatIsRecomputedDropsTheSameElements) {
  expect_in_world(
      [](Group& world) {
        const auto gradient = [&](bool recomputed) {
          at::manual_seed(5);
          const at::Tensor x = at::ones({64, 64}, gpu_of(world)).requires_grad_();
          const auto drop = [](const at::Tensor& in) { return at::dropout(in, 0.5, true); };
          (recomputed ? recompute(drop, x) : drop(x)).sum().backward();
          return on_cpu({x.grad()});
        };
        check_close(gradient(true), gradient(false), "the gradient of dropout");
      },
      1);
}

// Its first layer is on the CPU.
class TwoDevices : public nn::Module {
 public:
  explicit TwoDevices(at::Device device)
      : first(register_module("first", nn::Linear(5, 7))), second(register_module("second", nn::Linear(7, 3))) {
    to(at::kDouble);
    second->to(device);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second->forward(first->forward(x).to(second->weight.device()).tanh());
  }
  nn::Linear first, second;
};

TEST(TrainingOnGpus, AModelMayBeOnTwoDevices) {
  expect_in_world([](Group& world) {
    const auto train_on = [&](at::Device device) {
      at::manual_seed(2 + world.rank());
      const auto net = std::make_shared<TwoDevices>(device);
      const at::Tensor x = at::randn({6, 5}, at::kDouble);
      DataParallel ddp(net, world);
      AdamW optimizer(*net);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        ddp.forward(x).square().sum().backward();
        ddp.finish();
        optimizer.clip_grad_norm(0.1);
        optimizer.step();
      }
      return on_cpu(net->parameters());
    };
    check_close(train_on(gpu_of(world)), train_on(kCpu), "weights");
  });
}

TEST(TrainingOnGpus, AModelHalfOnTheCpuCannotBeFullySharded) {
  expect_in_world([](Group& world) {
    const auto net = std::make_shared<TwoDevices>(gpu_of(world));
    expect_words(sentence_of([&] { FullySharded sharded(net, world); }),
                 "FullySharded: the root is on several devices, first.weight f64[7, 5] and second.weight f64[3, 7] on "
                 "cuda:");
  });
}

TEST(TrainingOnGpus, ACheckpointContinuesOnTheOtherDevice) {
  const TemporaryFolder folder;
  expect_in_world([&](Group& world) {
    const Training training{.rule = AdamOptions{}};
    const Tensors expected = train(world, kCpu, training);
    for (const bool begins_on_gpu : {true, false}) {
      const CheckpointerOptions options{.folder = folder.path() + (begins_on_gpu ? "/gpu" : "/cpu"), .interval = 1};
      {
        Trainee trainee(world, begins_on_gpu ? gpu_of(world) : kCpu, training);
        Checkpointer checkpoints(world, options);
        checkpoints.add("model", *trainee.net);
        checkpoints.add("optimizer", trainee.optimizer);
        checkpoints.resume();
        for (int step = 1; step <= 2; ++step) trainee.step(), checkpoints.after(step);
        checkpoints.finish();
      }
      Trainee trainee(world, begins_on_gpu ? kCpu : gpu_of(world), training);
      Checkpointer checkpoints(world, options);
      checkpoints.add("model", *trainee.net);
      checkpoints.add("optimizer", trainee.optimizer);
      check(checkpoints.resume().step == 2, "the checkpoint is not of step 2");
      trainee.step();
      check_close(trainee.results(), Tensors(expected.begin() + 2, expected.end()), "step 3");
    }
  });
}

// CUDA's driver stages copies to other memory.
TEST(TrainingOnGpus, StateIsCopiedThroughPinnedMemory) {
  expect_in_world(
      [](Group& world) {
        const at::Device gpu = gpu_of(world);
        const at::Tensor values = at::arange(12, at::kDouble).reshape({4, 3}), saved = values.to(gpu),
                         loaded = at::zeros_like(saved);
        std::vector<double> rows(6);
        auto* const bytes = reinterpret_cast<std::byte*>(rows.data());
        const std::uint64_t before = unpinned_copies_of(gpu.index());
        state_box({"saved", ""}, saved).source(1, 2, bytes).or_throw();
        state_box({"loaded", ""}, loaded).sink(2, 2, bytes).or_throw();
        const std::uint64_t after = unpinned_copies_of(gpu.index());
        check(after == before, after - before, " of 2 copies were through memory that is not pinned");
        check_close(on_cpu({loaded.narrow(0, 2, 2)}), {values.narrow(0, 1, 2)}, "rows");
      },
      1);
}

TEST(TrainingOnGpus, ModelsOnOtherKindsOfDevicesAreRejected) {
  expect_in_world([](Group& world) {
    nn::Sequential net = make_net(world.rank() == 0 ? kCpu : gpu_of(world));
    const std::string expected =
        "the ranks have different models: tensor 1 is 0.weight f64[32, 20] on rank 0, but 0.weight f64[32, 20] on cuda "
        "on rank 1";
    expect_words(sentence_of([&] { DataParallel ddp(net, world); }), expected);
    expect_words(sentence_of([&] { FullySharded sharded(net, world); }), expected);
  });
}

}  // namespace
}  // namespace tutti::test
