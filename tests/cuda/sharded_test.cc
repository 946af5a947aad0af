// Optimizers and models whose state the ranks divide train on GPUs as on the CPU.
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/training.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/sharded_optimizer.h"

namespace tutti::test {
namespace {

// Three steps of an optimizer whose state the ranks divide; the weights afterwards.
Tensors train_sharded(const Group& world, at::Device device, const DataParallelOptions& parallel, int stage,
                      double max_norm) {
  nn::Sequential net = seeded_net(world, device);
  DataParallel ddp(net, world, parallel);
  ShardedOptimizer optimizer(ddp.reducer(), AdamWOptions{}, {.stage = stage});
  const at::Tensor x = at::randn({8, 20}, at::kDouble).to(device), y = at::randint(10, {8}, at::kLong).to(device);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    nn::functional::cross_entropy(ddp.forward(x), y).backward();
    if (max_norm > 0) optimizer.clip_grad_norm(max_norm);
    optimizer.step();
  }
  return on_cpu(net->parameters());
}

TEST(TrainingOnGpus, ShardedOptimizersStepAsOnTheCpu) {
  expect_in_world(
      [](Group& world) {
        for (const auto& [in_place_bytes, overlap] :
             {std::pair(0, Overlap::kAuto), {1 << 20, Overlap::kAuto}, {1 << 20, Overlap::kOff}})
          for (const int stage : {1, 2})
            for (const double max_norm : {0.0, 0.05}) {
              const DataParallelOptions options{.in_place_bytes = std::size_t(in_place_bytes), .overlap = overlap};
              check_close(train_sharded(world, gpu_of(world), options, stage, max_norm),
                          train_sharded(world, kCpu, options, stage, max_norm),
                          "stage " + std::to_string(stage) + ", clipped to " + std::to_string(max_norm));
            }
      },
      3);
}

TEST(TrainingOnGpus, AShardedOptimizerOfOneRankStepsAsOnTheCpu) {
  expect_in_world(
      [](Group& world) {
        check_close(train_sharded(world, gpu_of(world), {}, 1, 0.05), train_sharded(world, kCpu, {}, 1, 0.05),
                    "weights");
      },
      1);
}

// The losses of three steps of a model whose weights the ranks divide, and its weights afterwards.
Tensors train_fully_sharded(const Group& world, at::Device device, const FullyShardedOptions& options,
                            bool by_sharded_optimizer) {
  at::manual_seed(7 + world.rank());
  nn::Sequential net(nn::Linear(20, 33), nn::ReLU(), nn::Linear(33, 33), nn::Tanh(), nn::Linear(33, 10));
  net->to(options.mixed_precision.param_dtype ? at::kFloat : at::kDouble);
  net->to(device);
  const at::Tensor x = at::randn({8, 20}, at::kDouble).to(device, net->parameters()[0].scalar_type());
  const at::Tensor y = at::randint(10, {8}, at::kLong).to(device);
  FullySharded sharded(net, world, options);
  std::optional<ShardedOptimizer> of_shards;
  std::optional<Optimizer> of_tensors;
  if (by_sharded_optimizer)
    of_shards.emplace(sharded, AdamWOptions{});
  else
    of_tensors.emplace(sharded.named_parameters(), AdamWOptions{});
  Tensors results;
  for (int step = 0; step < 3; ++step) {
    results.push_back(nn::functional::cross_entropy(sharded.forward(x).to(at::kFloat), y));
    results.back().backward();
    sharded.finish();
    if (of_shards) {
      of_shards->clip_grad_norm(0.5);
      of_shards->step();
      of_shards->zero_grad();
    } else {
      sharded.clip_grad_norm(0.5);
      of_tensors->step();
      sharded.zero_grad();
    }
  }
  const ShardedModule::Whole whole(sharded);
  for (const at::Tensor& weight : net->parameters()) results.push_back(weight);
  return on_cpu(results);
}

TEST(TrainingOnGpus, FullyShardedModelsLearnAsOnTheCpu) {
  std::vector<std::pair<std::string, FullyShardedOptions>> ways(4);
  ways[0].first = "by layers";
  ways[1].first = "gathered anew for backward(), nothing ahead", ways[1].second.prefetch = 0;
  ways[2].first = "kept for backward()", ways[2].second.reshard_after_forward = false;
  ways[3].first = "in bf16", ways[3].second.mixed_precision.param_dtype = DType::kBF16;
  expect_in_world(
      [&](Group& world) {
        for (const auto& [name, options] : ways)
          for (const bool by_sharded_optimizer : {false, true})
            check_close(train_fully_sharded(world, gpu_of(world), options, by_sharded_optimizer),
                        train_fully_sharded(world, kCpu, options, by_sharded_optimizer),
                        name + (by_sharded_optimizer ? ", ShardedOptimizer" : ", Optimizer"),
                        options.mixed_precision.param_dtype ? 1e-2 : 1e-6);
      },
      3);
}

#ifdef TUTTI_HAS_NCCL
TEST(TrainingOnGpus, NcclCarriesAllOfIt) {
  if (const std::string lack = lacks_gpus(2); !lack.empty()) GTEST_SKIP() << lack;
  expect_in_world(
      [](Group& world) {
        const Training training{.rule = AdamOptions{}, .max_norm = 0.5, .syncs_norms = true};
        check_close(train(world, gpu_of(world), training), train(world, kCpu, training), "DataParallel");
        for (const int stage : {1, 2})
          check_close(train_sharded(world, gpu_of(world), {}, stage, 0.05), train_sharded(world, kCpu, {}, stage, 0.05),
                      "ShardedOptimizer");
        check_close(train_fully_sharded(world, gpu_of(world), {}, true), train_fully_sharded(world, kCpu, {}, true),
                    "FullySharded", 1e-6);
      },
      2, kNccl);
}
#endif

}  // namespace
}  // namespace tutti::test
