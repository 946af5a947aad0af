// The same bits on any number of processes.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <mutex>
#include <optional>

#include "tutti/base/random.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/data_parallel/test_models.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/seed.h"

namespace tutti {
namespace {

using test::check;
using test::check_says;
using test::error_of;
using test::kPlain;

// What it computes hangs on a buffer that every forward() changes, so turns that begin with other buffers are seen.
class Normalised : public torch::nn::Module {
 public:
  Normalised()
      : first(register_module("first", torch::nn::Linear(8, 33))),
        norm(register_module("norm", torch::nn::BatchNorm1d(33))),
        last(register_module("last", torch::nn::Linear(33, 5))),
        forwards(register_buffer("forwards", at::zeros({}))) {
    const at::NoGradGuard no_grad;
    auto generator = generator_at(1, {});
    for (auto& parameter : parameters()) parameter.copy_(at::randn(parameter.sizes(), generator));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const double grown = 1 + 0.1 * forwards.item<double>();
    forwards += 1;
    return last->forward(at::tanh(norm->forward(first->forward(x))) * mask) * grown;
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
  at::Tensor forwards;
};

// One logical rank's part of a step: its samples and what drops out hang on the logical rank.
template <class Forward>
void forward_and_backward(std::int64_t step, int replica, const Forward& forward) {
  auto generator = generator_at(7, {.step = step, .replica = replica});
  const auto x = at::randn({6, 8}, generator), mask = at::rand({6, 33}, generator).gt(0.2).to(at::kFloat) / 0.8;
  forward(x, mask).pow(2).mean().backward();
}

using Weights = std::vector<at::Tensor>;

Weights tensors_of_model(const Normalised& model) {
  Weights tensors;
  for (const auto& named : tensors_of(model)) tensors.push_back(named.tensor.detach().clone());
  return tensors;
}

constexpr int kSteps = 4;

void step_weights(Normalised& model, float rate) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.sub_(parameter.grad() * rate);
}

Weights trained(int processes, int logical, DataParallelOptions options) {
  options.logical_ranks = logical;
  Weights result;
  const auto models = test::make_models<Normalised>(processes);
  const auto outcomes = test::run_threads(processes, [&](Group& world) {
    auto model = models[std::size_t(world.rank())];
    DataParallel ddp(model, world, options);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      ddp.zero_grad();
      for (const int replica : ddp.logical_ranks()) {
        ddp.begin_logical_rank(replica);
        forward_and_backward(step, replica, [&](const auto& x, const auto& mask) { return ddp.forward(x, mask); });
      }
      ddp.finish();
      step_weights(*model, 0.1f);
    }
    if (world.rank() == 0) result = tensors_of_model(*model);
  });
  EXPECT_EQ(test::describe(outcomes), "") << processes << " processes";
  return result;
}

bool same_bits(const Weights& a, const Weights& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return true;
}

class LogicalRanksTest : public testing::Test {
 protected:
  LogicalRanksTest() { at::set_num_threads(1); }
};

TEST_F(LogicalRanksTest, AnyNumberOfProcessesGivesTheSameBits) {
  const DataParallelOptions packed, in_place{.in_place_bytes = 128},
      overlapped{
          .first_bucket_bytes = 256, .bucket_cap_mb = mebibytes(512), .in_place_bytes = 1024, .overlap = Overlap::kOn};
  const auto alone = trained(1, 8, packed);
  for (const int processes : {1, 2, 4, 8})
    for (const auto& options : {packed, in_place, overlapped})
      EXPECT_TRUE(same_bits(trained(processes, 8, options), alone))
          << processes << " processes, in place from " << options.in_place_bytes;
  const auto six = trained(1, 6, packed);
  EXPECT_TRUE(same_bits(trained(2, 6, in_place), six));
  EXPECT_FALSE(same_bits(six, alone));
}

TEST_F(LogicalRanksTest, TheyAreWhatAsManyProcessesWouldBe) {
  Weights expected;
  const auto models = test::make_models<Normalised>(4);
  test::run_threads(4, [&](Group& world) {
    auto model = models[std::size_t(world.rank())];
    DataParallel ddp(model, world, kPlain);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      ddp.zero_grad();
      forward_and_backward(step, world.rank(), [&](const auto& x, const auto& mask) { return ddp.forward(x, mask); });
      ddp.finish();
      step_weights(*model, 0.1f);
    }
    if (world.rank() == 0) expected = tensors_of_model(*model);
  });
  const auto found = trained(2, 4, {});
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << "tensor " << i;
}

// Neither the number of logical ranks nor the scale is a power of two: both are divided by after all has been added.
TEST_F(LogicalRanksTest, AShardedOptimizerAndALossScalerGoWithThem) {
  const auto trained_by = [](int processes, int stage) {
    Weights result;
    const auto models = test::make_models<Normalised>(processes);
    const auto outcomes = test::run_threads(processes, [&](Group& world) {
      auto model = models[std::size_t(world.rank())];
      DataParallel ddp(model, world, {.finite_check = FiniteCheck::kReport, .logical_ranks = 6});
      LossScaler scaler(ddp, {.initial_scale = 1000, .growth_factor = 3, .growth_interval = 1});
      Optimizer whole(*model, AdamOptions{.lr = 0.05});
      std::optional<ShardedOptimizer> sharded;
      if (stage > 0) sharded.emplace(ddp, AdamOptions{.lr = 0.05}, ShardedOptimizerOptions{.stage = stage});
      for (std::int64_t step = 0; step < kSteps; ++step) {
        ddp.zero_grad();
        for (const int replica : ddp.logical_ranks()) {
          ddp.begin_logical_rank(replica);
          auto generator = generator_at(7, {.step = step, .replica = replica});
          const auto x = at::randn({6, 8}, generator), mask = at::ones({6, 33});
          scaler.scale(ddp.forward(x, mask).pow(2).mean()).backward();
        }
        if (!sharded) ddp.finish();
        check(sharded ? scaler.step(*sharded) : scaler.step(whole), "stepped");
        scaler.update();
      }
      check(scaler.scale() == 1000 * 81, "scale ", scaler.scale());
      if (world.rank() == 0) result = tensors_of_model(*model);
    });
    EXPECT_EQ(test::describe(outcomes), "") << processes << " processes, stage " << stage;
    return result;
  };
  const auto expected = trained_by(1, 0);
  EXPECT_TRUE(same_bits(trained_by(2, 0), expected));
  for (const int stage : {1, 2}) {
    EXPECT_TRUE(same_bits(trained_by(2, stage), trained_by(1, stage))) << "stage " << stage;
    const auto sharded = trained_by(2, stage);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(sharded[i].to(at::kDouble), expected[i].to(at::kDouble), 1e-4, 1e-6)) << i;
  }
}

// OpenBLAS has a number of threads of its own.
TEST_F(LogicalRanksTest, FixTheThreadsOfLibTorchAndOfItsBlas) {
  const auto threads_of_blas = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  const auto expect_threads = [&](int threads) {
    check(at::get_num_threads() == threads, at::get_num_threads(), " threads of LibTorch");
    check(!threads_of_blas || threads_of_blas() == threads, threads_of_blas ? threads_of_blas() : 0, " of the BLAS");
  };
  const auto outcomes = test::run_threads(1, [&](Group& world) {
    for (const int threads : {1, 2, 1}) {
      fix_compute_threads(threads);
      at::set_num_threads(4);
      auto options = kPlain;
      options.logical_ranks = 2;
      DataParallel ddp(std::make_shared<test::Branches>(), world, options);
      expect_threads(threads);
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST_F(LogicalRanksTest, UnusedParametersMayDifferBetweenTurns) {
  const auto trained_branches = [](int processes) {
    Weights result;
    const auto models = test::make_models<test::Branches>(processes);
    for (const auto& model : models) {
      const at::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.fill_(0.3);
    }
    const auto outcomes = test::run_threads(processes, [&](Group& world) {
      auto options = kPlain;
      options.logical_ranks = 4;
      options.find_unused_parameters = true;
      DataParallel ddp(models[std::size_t(world.rank())], world, options);
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        for (const int replica : ddp.logical_ranks()) {
          ddp.begin_logical_rank(replica);
          ddp.forward(at::full({1, 3}, 0.1f * float(replica + 1)), replica != 3, replica % 2 == 1).sum().backward();
        }
        ddp.finish();
      }
      if (world.rank() == 0)
        for (const auto& parameter : ddp.module().parameters()) result.push_back(parameter.grad().clone());
    });
    EXPECT_EQ(test::describe(outcomes), "");
    return result;
  };
  const auto alone = trained_branches(1);
  EXPECT_TRUE(same_bits(trained_branches(2), alone));
  EXPECT_TRUE(same_bits(trained_branches(4), alone));
  EXPECT_TRUE(at::allclose(alone[0], at::full({2, 3}, 0.6f / 4)));
  EXPECT_TRUE(at::allclose(alone[2], at::full({2, 3}, 0.6f / 4)));
}

TEST_F(LogicalRanksTest, AStepThatIsGivenUpLeavesNothingBehind) {
  const auto outcomes = test::run_threads(1, [](Group& world) {
    auto options = kPlain;
    options.logical_ranks = 2;
    DataParallel ddp(std::make_shared<test::Branches>(), world, options);
    const auto turn = [&](int replica) {
      ddp.begin_logical_rank(replica);
      ddp.forward(at::full({1, 3}, float(replica + 1))).sum().backward();
    };
    turn(0);
    ddp.zero_grad();
    turn(0), turn(1);
    ddp.finish();
    check(at::equal(ddp.module().left->weight.grad(), at::full({2, 3}, 1.5f)), "the mean of 1 and 2");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST_F(LogicalRanksTest, WhatCannotBeIsRefusedInASentence) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    auto model = std::make_shared<test::Branches>();
    const auto makes = [&](const std::function<void(DataParallelOptions&)>& change) {
      return error_of([&] {
        auto options = kPlain;
        options.logical_ranks = 4;
        change(options);
        DataParallel ddp(model, world, options);
      });
    };
    check_says(
        makes([](auto& o) { o.logical_ranks = 3; }),
        "DataParallel: 3 logical ranks on 2 processes; expected a power of two of processes whose number divides "
        "the logical ranks' (hint: start 1 process, or let the number of logical ranks be a multiple of 2)");
    check_says(makes([](auto& o) { o.logical_ranks = -2; }), "(hint: take 1 or more logical ranks)");
    check_says(makes([](auto& o) { o.static_graph = true; }), "logical_ranks and static_graph were both given");
    check_says(makes([](auto& o) { o.delay_all_reduce_named_params = {"left.bias"}; }),
               "logical_ranks and delayed parameters were both");
    check_says(makes([](auto& o) { o.sparse = {"left.weight"}; }), "logical_ranks and sparse gradients were both");

    auto options = kPlain;
    options.logical_ranks = 4;
    DataParallel ddp(model, world, options), plain(model, world, kPlain);
    const int first = 2 * world.rank();
    check(ddp.logical_ranks() == std::vector{first, first + 1} && plain.logical_ranks().empty(), "numbers");
    check_says(error_of([&] { plain.begin_logical_rank(0); }), "set DataParallelOptions::logical_ranks");
    check_says(error_of([&] { ddp.forward(at::ones({1, 3})); }), "forward() before begin_logical_rank()");
    check_says(error_of([&] { ddp.begin_logical_rank(first + 1); }),
               "begin_logical_rank(" + std::to_string(first + 1) + "), but " + std::to_string(first) + " is next");
    check_says(error_of([&] { auto accumulating = ddp.no_sync(); }), "logical_ranks and no_sync()");
    ddp.begin_logical_rank(first);
    ddp.forward(at::ones({1, 3})).sum().backward();
    check_says(error_of([&] { ddp.finish(); }), "finish() after the turn of logical rank " + std::to_string(first));
    ddp.begin_logical_rank(first + 1);
    check_says(error_of([&] { ddp.begin_logical_rank(first + 2); }), "all have had their turn");
  });
  EXPECT_EQ(test::describe(outcomes), "");
  const auto three = test::run_threads(3, [](Group& world) {
    auto options = kPlain;
    const auto says = [&](int logical_ranks, const char* words) {
      options.logical_ranks = logical_ranks;
      check_says(error_of([&] { DataParallel ddp(std::make_shared<test::Branches>(), world, options); }), words);
    };
    says(6, "6 logical ranks on 3 processes; expected a power of two");
    says(6, "(hint: start 1 or 2 processes)");
    says(12, "(hint: start 1, 2 or 4 processes)");
    says(3, "(hint: start 1 process)");
  });
  EXPECT_EQ(test::describe(three), "");
}

}  // namespace
}  // namespace tutti
