#pragma once
// What the tests of training on a GPU share: a small model in training on a device, and worlds for it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda/worlds.h"
#include "tests/harness/ranks.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/sync_batch_norm.h"

namespace tutti::test {

namespace nn = torch::nn;
using Tensors = std::vector<at::Tensor>;

inline const at::Device kCpu(at::kCPU);

inline at::Device gpu_of(const Group& world) { return at::Device(world.device()); }

inline Tensors on_cpu(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

inline void check_close(const Tensors& mine, const Tensors& expected, const std::string& what,
                        double tolerance = 1e-12) {
  check(mine.size() == expected.size(), what, ": ", mine.size(), " tensors, expected ", expected.size());
  for (std::size_t i = 0; i < mine.size(); ++i)
    check(at::allclose(mine[i], expected[i], tolerance, tolerance), what, ", tensor ", i,
          ": the greatest difference is ", (mine[i] - expected[i]).abs().max().item<double>());
}

// There is no bias before the norm: its gradient would be 0 but for rounding, and Lion steps by the sign of that.
inline nn::Sequential make_net(at::Device device) {
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

inline nn::Sequential seeded_net(const Group& world, at::Device device) {
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

inline Tensors train(const Group& world, at::Device device, const Training& training) {
  Trainee trainee(world, device, training);
  for (int step = 0; step < 3; ++step) trainee.step();
  return trainee.results();
}

inline void expect_in_world(const RankBody& body, int size = 2, const char* engine = kStaged) {
  EXPECT_EQ(describe(run_processes(size, body, with_gpus(engine))), "");
}

}  // namespace tutti::test
