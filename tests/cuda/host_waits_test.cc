// How often a call of CUDA makes the host wait in a step: as often for a model of many layers as for one of few. Waits
// for calls of a group are not among them: overlap_test.cc has those.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tests/cuda/training.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/sharded_optimizer.h"

namespace tutti::test {
namespace {

// Steps that may check and clip gradients: of a DataParallel, by an Optimizer (stage 0) or a ShardedOptimizer, ...
class StepsOfReplicas {
 public:
  StepsOfReplicas(const Group& world, const nn::Sequential& net, FiniteCheck finite_check, int stage, bool clips = true)
      : ddp_(net, world, {.in_place_bytes = 256, .finite_check = finite_check}), clips_(clips) {
    if (stage == 0)
      whole_.emplace(*net, AdamWOptions{});
    else
      sharded_.emplace(ddp_.reducer(), AdamWOptions{}, ShardedOptimizerOptions{.stage = stage});
  }
  void step(const at::Tensor& x) {
    ddp_.forward(x).square().mean().backward();
    if (whole_) ddp_.finish();
    whole_ ? step_by(*whole_) : step_by(*sharded_);
  }

 private:
  template <class Stepping>
  void step_by(Stepping& optimizer) const {
    if (clips_) optimizer.clip_grad_norm(0.01);
    optimizer.step();
    optimizer.zero_grad();
  }

  DataParallel<nn::SequentialImpl> ddp_;
  const bool clips_;
  std::optional<Optimizer> whole_;
  std::optional<ShardedOptimizer> sharded_;
};

// ... and of a FullySharded.
class StepsOfShards {
 public:
  StepsOfShards(const Group& world, const nn::Sequential& net, FiniteCheck finite_check, bool by_sharded_optimizer,
                bool clips = true)
      : model_(net, world, {.finite_check = finite_check}), clips_(clips) {
    if (by_sharded_optimizer)
      sharded_.emplace(model_, AdamWOptions{});
    else
      whole_.emplace(model_.named_parameters(), AdamWOptions{});
  }
  void step(const at::Tensor& x) {
    model_.forward(x).square().mean().backward();
    model_.finish();
    if (whole_) {
      if (clips_) model_.clip_grad_norm(0.01);
      whole_->step();
      model_.zero_grad();
    } else {
      if (clips_) sharded_->clip_grad_norm(0.01);
      sharded_->step();
      sharded_->zero_grad();
    }
  }

 private:
  FullySharded<nn::SequentialImpl> model_;
  const bool clips_;
  std::optional<Optimizer> whole_;
  std::optional<ShardedOptimizer> sharded_;
};

// ... of PowerSgd, and of norms over the batches of all ranks.
class StepsOfPowerSgd {
 public:
  StepsOfPowerSgd(const Group& world, const nn::Sequential& net, std::int64_t rank)
      : ddp_(net, world, {.hook = std::make_shared<PowerSgd>(PowerSgdOptions{.rank = rank, .start_step = 2})}) {}
  void step(const at::Tensor& x) {
    ddp_.zero_grad();
    ddp_.forward(x).square().mean().backward();
    ddp_.finish();
  }

 private:
  DataParallel<nn::SequentialImpl> ddp_;
};

class StepsOfSyncedNorms {
 public:
  StepsOfSyncedNorms(const Group& world, const nn::Sequential& net) {
    for (std::size_t layer = 0; layer < net->size(); layer += 2) {
      net_->push_back(nn::Linear(8, 8));
      net_->push_back(nn::BatchNorm1d(8));
    }
    net_->to(net->parameters()[0].device());
    synced_.emplace(sync_batch_norms(net_.ptr(), world));
  }
  void step(const at::Tensor& x) { net_->forward(x).square().mean().backward(); }

 private:
  nn::Sequential net_;
  std::optional<SyncedBatchNorms> synced_;
};

// How often the host waits for the GPU in the fifth step of a model of so many layers.
template <class Steps, class... How>
std::uint64_t host_waits(const Group& world, int layers, How... how) {
  const at::Device gpu = gpu_of(world);
  nn::Sequential net;
  for (int layer = 0; layer < layers; ++layer) {
    net->push_back(nn::Linear(8, 8));
    net->push_back(nn::Tanh());
  }
  net->to(gpu);
  const at::Tensor x = at::ones({4, 8}, gpu);
  Steps steps(world, net, how...);
  for (int step = 0; step < 4; ++step) steps.step(x);
  const std::uint64_t before = host_waits_for(gpu.index());
  steps.step(x);
  return host_waits_for(gpu.index()) - before;
}

TEST(TrainingOnGpus, TheHostWaitsAsOftenForLargeModelsAsForSmallOnes) {
  expect_in_world([](Group& world) {
    const auto check_waits = [](const std::string& what, const auto& waits_with, std::uint64_t most = 2) {
      const std::uint64_t small = waits_with(1), large = waits_with(9);
      check(small == large && large <= most, what, ": the host waits ", small, " times with 1 layer, ", large,
            " times with 9");
    };
    for (const FiniteCheck finite_check : {FiniteCheck::kInReduction, FiniteCheck::kReport})
      for (const int stage : {0, 1, 2})
        check_waits(
            "DataParallel, FiniteCheck " + std::to_string(int(finite_check)) + ", stage " + std::to_string(stage),
            [&](int layers) { return host_waits<StepsOfReplicas>(world, layers, finite_check, stage); });
    for (const FiniteCheck finite_check : {FiniteCheck::kThrow, FiniteCheck::kOff})
      for (const bool by_sharded_optimizer : {false, true})
        check_waits(
            "FullySharded, FiniteCheck " + std::to_string(int(finite_check)) +
                (by_sharded_optimizer ? ", ShardedOptimizer" : ", Optimizer"),
            [&](int layers) { return host_waits<StepsOfShards>(world, layers, finite_check, by_sharded_optimizer); });
    // Steps that read no number of the GPU.
    for (const int stage : {0, 1, 2})
      check_waits(
          "DataParallel without checks, stage " + std::to_string(stage),
          [&](int layers) { return host_waits<StepsOfReplicas>(world, layers, FiniteCheck::kOff, stage, false); }, 0);
    for (const bool by_sharded_optimizer : {false, true})
      check_waits(
          std::string("FullySharded without checks, ") + (by_sharded_optimizer ? "ShardedOptimizer" : "Optimizer"),
          [&](int layers) {
            return host_waits<StepsOfShards>(world, layers, FiniteCheck::kOff, by_sharded_optimizer, false);
          },
          0);
    for (const std::int64_t rank : {1, 2, 3})
      check_waits(
          "PowerSgd of rank " + std::to_string(rank),
          [&](int layers) { return host_waits<StepsOfPowerSgd>(world, layers, rank); }, 3);
    check_waits(
        "sync_batch_norms", [&](int layers) { return host_waits<StepsOfSyncedNorms>(world, layers); }, 0);
  });
}

}  // namespace
}  // namespace tutti::test
