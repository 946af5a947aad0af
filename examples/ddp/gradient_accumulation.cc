// A batch that does not fit into memory comes in four pieces. Only the last one talks to the other ranks: what the
// first three gathered on each rank goes with it.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  constexpr int kPieces = 4;
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  tutti::DataParallel ddp(model, world);
  tutti::Sgd optimizer(model->parameters(), {.lr = 0.1});
  torch::manual_seed(world.rank());
  double sum = 0;
  const auto run_piece = [&] {
    const auto x = torch::randn({8, 8}), y = x.sum(1, true) / 4;
    const auto loss = torch::mse_loss(ddp.forward(x), y) / kPieces;  // so that the pieces add up to a mean
    loss.backward();
    sum += loss.item<double>();
  };
  for (int step = 0; step < 300; ++step) {
    sum = 0;
    ddp.zero_grad();
    for (int piece = 0; piece + 1 < kPieces; ++piece) {
      const auto pause = ddp.no_sync();
      run_piece();
    }
    run_piece();
    ddp.finish();
    optimizer.step();
  }
  std::printf("rank %d of %d: %zu times gradients travelled, loss %.4f, weights %.6f\n", world.rank(), world.size(),
              ddp.stats().steps, sum, model->parameters()[0].abs().sum().item<double>());
}
