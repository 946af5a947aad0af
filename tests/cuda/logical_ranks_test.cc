// Training by logical ranks on GPUs has the same bits on any number of processes.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/cuda/training.h"

namespace tutti::test {
namespace {

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
