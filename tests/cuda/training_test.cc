// Data parallel training, optimizers and clipping on a GPU give what they give on the CPU. The GPU is a real one with
// TUTTI_REAL_GPUS, else the doubles of the CUDA runtime and of LibTorch's device.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda/worlds.h"
#include "tests/fakes/cuda/cudart.h"
#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/parallelize.h"
#include "tutti/parallel/recompute.h"
#include "tutti/parallel/sync_batch_norm.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/sparse_collectives.h"

namespace tutti::test {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

const at::Device kCpu(at::kCPU);

at::Device gpu_of(const Group& world) { return at::Device(world.device()); }

Tensors on_cpu(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

void check_close(const Tensors& mine, const Tensors& expected, const std::string& what, double tolerance = 1e-12) {
  check(mine.size() == expected.size(), what, ": ", mine.size(), " tensors, expected ", expected.size());
  for (std::size_t i = 0; i < mine.size(); ++i)
    check(at::allclose(mine[i], expected[i], tolerance, tolerance), what, ", tensor ", i,
          ": the greatest difference is ", (mine[i] - expected[i]).abs().max().item<double>());
}

// There is no bias before the norm: its gradient would be 0 but for rounding, and Lion steps by the sign of that.
nn::Sequential make_net(at::Device device) {
  nn::Sequential net(nn::Linear(nn::LinearOptions(20, 32).bias(false)), nn::BatchNorm1d(32), nn::ReLU(),
                     nn::Linear(32, 10));
  net->to(device, at::kDouble);
  return net;
}

struct Training {
  UpdateRule rule = SgdOptions{.lr = 0.1, .momentum = 0.9};
  DataParallelOptions options{};
  double max_norm = 0, max_value = 0;  // 0: not clipped
  bool syncs_norms = false;
};

nn::Sequential seeded_net(const Group& world, at::Device device) {
  at::manual_seed(7 + world.rank());
  nn::Sequential net = make_net(kCpu);
  net->to(device);
  return net;
}

// A model in training on a device. Ranks begin with other weights, and have other samples.
struct Trainee {
  Trainee(const Group& world, at::Device on, const Training& how)
      : training(how),
        device(on),
        net(seeded_net(world, device)),
        synced(training.syncs_norms ? std::optional(sync_batch_norms(net.ptr(), world)) : std::nullopt),
        ddp(net, world, training.options),
        optimizer(*net, training.rule),
        x(at::randn({8, 20}, at::kDouble).to(device)),
        y(at::randint(10, {8}, at::kLong).to(device)) {}

  void step() {
    optimizer.zero_grad();
    losses.push_back(nn::functional::cross_entropy(ddp.forward(x), y));
    losses.back().backward();
    ddp.finish();
    if (training.max_norm > 0)
      norms.push_back(at::scalar_tensor(optimizer.clip_grad_norm(training.max_norm).norm, at::kDouble));
    if (training.max_value > 0) optimizer.clip_grad_value(training.max_value);
    optimizer.step();
  }

  // Losses, weights, buffers and norms.
  Tensors results() const {
    Tensors all = losses;
    for (const Tensors& more : {net->parameters(), net->buffers()}) all.insert(all.end(), more.begin(), more.end());
    for (const at::Tensor& tensor : all) check(tensor.device() == device, "a result is on ", tensor.device().str());
    all.insert(all.end(), norms.begin(), norms.end());
    return on_cpu(all);
  }

  const Training training;
  const at::Device device;
  nn::Sequential net;
  std::optional<SyncedBatchNorms> synced;
  DataParallel<nn::SequentialImpl> ddp;
  Optimizer optimizer;
  at::Tensor x, y;
  Tensors losses{}, norms{};
};

Tensors train(const Group& world, at::Device device, const Training& training) {
  Trainee trainee(world, device, training);
  for (int step = 0; step < 3; ++step) trainee.step();
  return trainee.results();
}

void expect_in_world(const RankBody& body, int size = 2, const char* engine = kStaged) {
  EXPECT_EQ(describe(run_processes(size, body, with_gpus(engine))), "");
}

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
        for (const std::size_t in_place_bytes : {0, 1 << 20})
          for (const int stage : {1, 2})
            for (const double max_norm : {0.0, 0.05}) {
              const DataParallelOptions options{.in_place_bytes = in_place_bytes};
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

// Steps that check and clip gradients: of a DataParallel, by an Optimizer (stage 0) or a ShardedOptimizer, ...
class StepsOfReplicas {
 public:
  StepsOfReplicas(const Group& world, const nn::Sequential& net, FiniteCheck finite_check, int stage)
      : ddp_(net, world, {.in_place_bytes = 256, .finite_check = finite_check}) {
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
  static void step_by(Stepping& optimizer) {
    optimizer.clip_grad_norm(0.01);
    optimizer.step();
    optimizer.zero_grad();
  }

  DataParallel<nn::SequentialImpl> ddp_;
  std::optional<Optimizer> whole_;
  std::optional<ShardedOptimizer> sharded_;
};

// ... and of a FullySharded.
class StepsOfShards {
 public:
  StepsOfShards(const Group& world, const nn::Sequential& net, FiniteCheck finite_check, bool by_sharded_optimizer)
      : model_(net, world, {.finite_check = finite_check}) {
    if (by_sharded_optimizer)
      sharded_.emplace(model_, AdamWOptions{});
    else
      whole_.emplace(model_.named_parameters(), AdamWOptions{});
  }
  void step(const at::Tensor& x) {
    model_.forward(x).square().mean().backward();
    model_.finish();
    if (whole_) {
      model_.clip_grad_norm(0.01);
      whole_->step();
      model_.zero_grad();
    } else {
      sharded_->clip_grad_norm(0.01);
      sharded_->step();
      sharded_->zero_grad();
    }
  }

 private:
  FullySharded<nn::SequentialImpl> model_;
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
  const std::uint64_t before = fake_cuda_host_waits(gpu.index());
  steps.step(x);
  return fake_cuda_host_waits(gpu.index()) - before;
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
    for (const std::int64_t rank : {1, 2, 3})
      check_waits(
          "PowerSgd of rank " + std::to_string(rank),
          [&](int layers) { return host_waits<StepsOfPowerSgd>(world, layers, rank); }, 3);
    check_waits(
        "sync_batch_norms", [&](int layers) { return host_waits<StepsOfSyncedNorms>(world, layers); }, 0);
  });
}

nn::Sequential make_stages(at::Device device) {
  at::manual_seed(6);
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 5), nn::Linear(5, 3));
  net->to(device, at::kDouble);
  return net;
}

TEST(TrainingOnGpus, PlansOfStagesAndReplicasTrainAsOnTheCpu) {
  expect_in_world(
      [](Group& world) {
        const auto loss = [](const at::Tensor& out, const at::Tensor& target) { return at::mse_loss(out, target); };
        const auto train_on = [&](at::Device device, const BlockPlan& plan) {
          const nn::Sequential net = make_stages(device);
          DividedTraining training(world, blocks_of(net), loss, AdamWOptions{}, plan, {.clip_grad_norm = 0.05});
          Tensors results;
          for (int step = 0; step < 3; ++step) {
            const at::Tensor x = at::arange(48, at::kDouble).add(step).sin().view({8, 6}).to(device);
            results.push_back(at::scalar_tensor(training.step(x, x.narrow(1, 0, 3)), at::kDouble));
          }
          training.gather_weights();
          for (const at::Tensor& weight : net->parameters()) results.push_back(weight);
          return on_cpu(results);
        };
        for (const bool shards : {false, true}) {
          const BlockPlan plan{
              .replicas = 2, .microbatches = 2, .shards_optimizer = shards, .stages = {{0, 2}, {2, 4}}};
          check_close(train_on(gpu_of(world), plan), train_on(kCpu, plan), to_string(plan), 1e-9);
        }
      },
      4);
}

TEST(TrainingOnGpus, BlocksAreMeasuredAndDivided) {
  expect_in_world([](Group& world) {
    const auto loss = [](const at::Tensor& out, const at::Tensor& target) { return at::mse_loss(out, target); };
    const at::Tensor x = at::ones({256, 6}, at::kDouble), target = at::ones({256, 3}, at::kDouble);
    const auto measured = [&](at::Device device) {
      const nn::Sequential net = make_stages(device);
      at::manual_seed(8);
      const at::Tensor drawn = at::rand({1}, at::TensorOptions(device)).cpu();
      at::manual_seed(8);
      const BlockChain chain =
          measure_blocks(world, blocks_of(net), loss, AdamWOptions{}, x.to(device), target.to(device));
      check(at::equal(at::rand({1}, at::TensorOptions(device)).cpu(), drawn), "random numbers were drawn");
      return chain;
    };
    const BlockChain on_gpu = measured(gpu_of(world)), on_cpu = measured(kCpu);
    for (std::size_t i = 0; i < on_cpu.blocks.size(); ++i) {
      const BlockCost &mine = on_gpu.blocks[i], &expected = on_cpu.blocks[i];
      check(mine.forward.of(128) > 0 && mine.backward.of(128) > 0, "block ", i, " takes no time");
      check(mine.weight_bytes == expected.weight_bytes && mine.output_bytes == expected.output_bytes, "block ", i);
      check(mine.kept_bytes > 0, "block ", i, " keeps nothing");
      if (i + 1 == on_cpu.blocks.size()) continue;  // with the loss, whose kernels keep other tensors
      // The allocator of GPUs rounds up.
      check(mine.kept_bytes >= expected.kept_bytes && mine.kept_bytes < expected.kept_bytes + 64, "block ", i,
            " keeps ", mine.kept_bytes, " bytes a row, on the CPU ", expected.kept_bytes);
    }
    check(on_gpu.sum_start > 0 && on_gpu.message_start > 0 && on_gpu.step_seconds > 0, "no time passed");

    nn::Sequential net = make_stages(gpu_of(world));
    DividedTraining training =
        parallelize(world, blocks_of(net), loss, AdamWOptions{}, x.to(gpu_of(world)), target.to(gpu_of(world)));
    const double first = training.step(x.to(gpu_of(world)), target.to(gpu_of(world)));
    check(training.step(x.to(gpu_of(world)), target.to(gpu_of(world))) < first, "the loss does not fall");
    expect_words(sentence_of([&] { measure_blocks(world, blocks_of(net), loss, AdamWOptions{}, x, target); }),
                 "blocks can be measured on one device only: the inputs are f64[256, 6], and 0.weight is f64[8, 6] on "
                 "cuda:");
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
    for (const int stage : {1, 2}) {
      nn::Sequential net = make_net(gpu_of(world));
      DataParallel ddp(net, world, {.finite_check = FiniteCheck::kInReduction});
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

TEST(TrainingOnGpus, ModelsOnOtherKindsOfDevicesAreRejected) {
  expect_in_world([](Group& world) {
    nn::Sequential net = make_net(world.rank() == 0 ? kCpu : gpu_of(world));
    expect_words(sentence_of([&] { DataParallel ddp(net, world); }), "on cuda");
  });
}

// ---- Sparse gradients

at::Tensor sparse_entries(const Group& world, at::ScalarType type, bool in_matrix, bool coalesced) {
  const std::int64_t count = world.rank() == 1 ? 0 : 30;
  const at::Tensor rows = at::randint(7, {count}, at::kLong), columns = at::randint(4, {count}, at::kLong);
  const at::Tensor values = at::randint(-3, 4, {count, 5}, at::kLong).to(type);
  const at::Tensor entries = in_matrix ? at::sparse_coo_tensor(at::stack({rows, columns}), values, {7, 4, 5})
                                       : at::sparse_coo_tensor(at::stack({rows}), values, {7, 5});
  return coalesced ? entries.coalesce() : entries;
}

TEST(TrainingOnGpus, SparseTensorsAreAddedAsOnTheCpu) {
  expect_in_world(
      [](Group& world) {
        at::manual_seed(20 + world.rank());
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kBool, at::kComplexDouble})
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg})
            for (const bool in_matrix : {false, true})
              for (const bool coalesced : {false, true}) {
                if (type == at::kBool && op == ReduceOp::kAvg) continue;
                const at::Tensor entries = sparse_entries(world, type, in_matrix, coalesced);
                const at::Tensor sum = all_reduce_sparse(world, entries.to(gpu_of(world)), op);
                const at::Tensor expected = all_reduce_sparse(world, entries, op);
                const std::string what = c10::toString(type) + std::string(in_matrix ? ", two dimensions" : "");
                check(sum.device() == gpu_of(world) && sum.is_coalesced(), what, ": ", sum.device().str());
                check(at::equal(sum._indices().cpu(), expected._indices()), what, ": other indices");
                check(at::equal(sum._values().cpu(), expected._values()), what, ": other values");
              }
      },
      3);
}

// A table of which a step touches a few rows.
class Words : public nn::Module {
 public:
  explicit Words(at::Device device)
      : table(register_module("table", nn::Embedding(nn::EmbeddingOptions(50, 4).sparse(true)))),
        bags(register_module("bags", nn::EmbeddingBag(nn::EmbeddingBagOptions(20, 4).mode(torch::kSum).sparse(true)))),
        head(register_module("head", nn::Linear(4, 3))) {
    to(at::kDouble);
    to(device);
  }
  at::Tensor forward(const at::Tensor& ids) {
    return head->forward(table->forward(ids).sum(1) + bags->forward(ids.remainder(20)));
  }
  nn::Embedding table;
  nn::EmbeddingBag bags;
  nn::Linear head;
};

TEST(TrainingOnGpus, SparseGradientsAreAveragedByRows) {
  expect_in_world(
      [](Group& world) {
        const auto train_on = [&](at::Device device, FiniteCheck finite_check) {
          at::manual_seed(30 + world.rank());
          const auto net = std::make_shared<Words>(device);
          DataParallel ddp(net, world, {.finite_check = finite_check});
          for (int step = 0; step < 3; ++step) {
            const at::Tensor ids = at::randint(50, {6, 3}, at::kLong).to(device);
            ddp.zero_grad();
            ddp.forward(ids).square().mean().backward();
            ddp.finish();
            check(net->table->weight.grad().is_sparse() && net->bags->weight.grad().is_sparse(), "dense gradients");
            const at::NoGradGuard no_grad;
            for (const at::Tensor& weight : net->parameters()) weight.add_(weight.grad(), -0.1);
          }
          return on_cpu(net->parameters());
        };
        for (const FiniteCheck finite_check : {FiniteCheck::kInReduction, FiniteCheck::kReport})
          check_close(train_on(gpu_of(world), finite_check), train_on(kCpu, finite_check), "weights");
      },
      3);
}

// ---- Logical ranks

// Weights and running means, computed as 4 ranks would.
Tensors train_logical(const Group& group, at::Device device, const DataParallelOptions& options) {
  at::manual_seed(11);
  nn::Sequential net = make_net(kCpu);
  net->to(device);
  DataParallel ddp(net, group, options);
  Optimizer optimizer(*net, AdamOptions{});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (const int replica : ddp.logical_ranks()) {
      ddp.begin_logical_rank(replica);
      at::manual_seed(std::uint64_t(100 * step + replica));
      const at::Tensor x = at::randn({8, 20}, at::kDouble).to(device), y = at::randint(10, {8}, at::kLong).to(device);
      nn::functional::cross_entropy(ddp.forward(x), y).backward();
    }
    ddp.finish();
    optimizer.step();
  }
  Tensors results = net->parameters();
  if (group.rank() == 0)  // which has those of logical rank 0
    for (const at::Tensor& buffer : net->buffers()) results.push_back(buffer);
  return on_cpu(results);
}

TEST(TrainingOnGpus, LogicalRanksHaveTheSameBitsOnAnyNumberOfProcesses) {
  expect_in_world(
      [](Group& world) {
        const Group alone = world.split(world.rank(), 0, "alone").or_throw();
        const Group pair = world.split(world.rank() / 2, world.rank(), "pair").or_throw();
        for (const Overlap overlap : {Overlap::kOff, Overlap::kOn}) {
          const DataParallelOptions options{.overlap = overlap, .logical_ranks = 4};
          const Tensors expected = train_logical(world, gpu_of(world), options);
          for (const Group* const fewer : {&alone, &pair}) {
            Tensors mine = train_logical(*fewer, gpu_of(world), options);
            if (world.rank() > 0) mine.resize(expected.size());
            check_close(mine, expected, fewer->name(), 0);
          }
          check_close(expected, train_logical(world, kCpu, options), "weights", 1e-9);
        }
      },
      4);
}

}  // namespace
}  // namespace tutti::test
