// Page 2 of the tutorial: your own model and data, on any number of ranks.
//
//   tutti run -n 2 spirals
#include <tutti/tutti.h>

#include <cstdio>

#include "spirals.h"

// The share of the test samples that the model labels correctly. Each rank evaluates every size-th sample.
double accuracy(const tutti::Group& world, Net& net, const Spirals& test) {
  const torch::NoGradGuard no_grad;
  const auto mine = torch::arange(world.rank(), test.size(), world.size());
  const auto labels = net.forward(test.x.index_select(0, mine)).argmax(1);
  const auto correct = labels.eq(test.y.index_select(0, mine)).sum().item<std::int64_t>();
  return double(tutti::all_reduce(world, correct)) / double(test.size());
}

constexpr int kBatch = 64;  // samples per step, over all ranks

int main() {
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);

  const Spirals train(6000, 1), test(1500, 2);
  torch::manual_seed(0);
  auto net = std::make_shared<Net>();
  tutti::DataParallel ddp(net, world);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));
  tutti::DistributedSampler sampler(train.size(), world);
  tutti::Loader loader(tutti::EpochBatches(sampler, kBatch / world.size()),
                       [&](const std::vector<std::int64_t>& samples) { return train.batch(samples); });

  for (int epoch = 1; epoch <= 5; ++epoch) {
    loader.set_epoch(epoch);
    double sum = 0;
    int steps = 0;
    while (const auto batch = loader.next()) {
      ddp.zero_grad();
      const auto loss = torch::cross_entropy_loss(ddp.forward(batch->x), batch->y);
      loss.backward();
      ddp.finish();
      optimizer.step();
      sum += loss.item<double>();
      ++steps;
    }
    const double mean = tutti::all_reduce(world, sum / steps) / world.size();
    const double right = accuracy(world, *net, test);
    if (world.rank() == 0) std::printf("epoch %d: loss %.4f, test accuracy %.3f\n", epoch, mean, right);
  }
}
