// Ranks step by themselves, and average their weights every four steps: a fourth of the messages. For the first 100 of
// 301 steps they average gradients in every step, as usual.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  constexpr int kStart = 100;
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  tutti::DataParallel ddp(model, world, {.hook = tutti::local_sgd({.start_step = kStart})});
  tutti::PeriodicAverager averager(model->parameters(), world, {.period = 4, .warmup_steps = kStart});
  tutti::Sgd optimizer(model->parameters(), {.lr = 0.1});
  torch::manual_seed(world.rank());
  torch::Tensor loss;
  int averages = 0;
  for (int step = 0; step < 301; ++step) {
    const auto x = torch::randn({32, 8}), y = x.sum(1, true) / 4;
    ddp.zero_grad();
    loss = torch::mse_loss(ddp.forward(x), y);
    loss.backward();
    ddp.finish();
    optimizer.step();
    averages += averager.average();  // after every step: it counts them
  }
  std::printf("rank %d of %d: weights were averaged %d times, loss %.4f, weights %.6f\n", world.rank(), world.size(),
              averages, loss.item<double>(), model->parameters()[0].abs().sum().item<double>());
}
