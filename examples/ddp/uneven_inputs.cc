// Ranks with different numbers of batches: who has none left takes part with zeros until all have finished.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  tutti::DataParallel ddp(model, world);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  torch::manual_seed(world.rank());
  int batches = 0;
  tutti::join_uneven(ddp, [&] {
    for (; batches < 300 - 50 * world.rank(); ++batches) {
      const auto x = torch::randn({32, 8}), y = x.sum(1, true) / 4;
      ddp.zero_grad();
      torch::mse_loss(ddp.forward(x), y).backward();
      ddp.finish();
      optimizer.step();
    }
  });  // now all ranks have the weights of who trained longest
  std::printf("rank %d of %d: %d batches of its own, weights %.6f\n", world.rank(), world.size(), batches,
              model->parameters()[0].abs().sum().item<double>());
}
