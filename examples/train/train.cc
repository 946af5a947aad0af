// The program of the README: data-parallel training on samples that all ranks share.
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  const tutti::Group world = tutti::init();  // rank and world size come from the launcher
  const tutti::Compute compute(world);       // tensors in shared memory, a share of the cores

  torch::manual_seed(0);  // the same samples on every rank
  const auto x = torch::randn({4096, 8}), y = x.sum(1, true);
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));

  tutti::DataParallel ddp(net, world);  // gives every rank the weights of rank 0
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  tutti::DistributedSampler sampler(x.size(0), world);  // each rank draws its own part of an epoch

  for (int epoch = 1; epoch <= 5; ++epoch) {
    sampler.set_epoch(epoch);  // a new order
    for (auto rows = sampler.take(64); !rows.empty(); rows = sampler.take(64)) {
      const auto batch = torch::tensor(rows);
      ddp.zero_grad();  // frees the gradients
      torch::mse_loss(ddp.forward(x.index_select(0, batch)), y.index_select(0, batch)).backward();
      ddp.finish();  // averages the gradients over all ranks, or throws if one has failed
      optimizer.step();
    }
    const auto loss = torch::mse_loss(net->forward(x), y);  // of all samples
    if (world.rank() == 0) std::printf("epoch %d, loss %.4f\n", epoch, loss.item<double>());
  }
}
