// Over a slow network gradients are squeezed: a matrix of [256, 256] travels as two of [256, 2]. What is lost in a step
// is added to the gradient of the next one.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  torch::nn::Sequential model(torch::nn::Linear(64, 256), torch::nn::Tanh(), torch::nn::Linear(256, 256),
                              torch::nn::Tanh(), torch::nn::Linear(256, 1));
  const auto hook = std::make_shared<tutti::PowerSgd>(tutti::PowerSgdOptions{.rank = 2, .start_step = 20});
  tutti::DataParallel ddp(model, world, {.hook = hook});
  tutti::Sgd optimizer(model->parameters(), {.lr = 0.02, .momentum = 0.9});
  torch::manual_seed(world.rank());
  torch::Tensor loss;
  for (int step = 0; step < 200; ++step) {
    const auto x = torch::randn({32, 64}), y = x.narrow(1, 0, 4).sum(1, true) / 4;
    ddp.zero_grad();
    loss = torch::mse_loss(ddp.forward(x), y);
    loss.backward();
    ddp.finish();
    optimizer.step();
  }
  const auto elements = hook->elements();
  std::printf("rank %d of %d: %.0f times less travelled, loss %.4f, weights %.6f\n", world.rank(), world.size(),
              double(elements.before) / double(elements.after), loss.item<double>(),
              model->parameters()[0].abs().sum().item<double>());
}
