// Data parallel training in 15 lines: the same program alone, under `tutti run -n 4`, torchrun, mpirun or srun.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);  // shared memory for tensors, a share of the cores
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  tutti::DataParallel ddp(model, world);  // all ranks take rank 0's weights
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  torch::manual_seed(world.rank());  // every rank has data of its own
  torch::Tensor loss;
  for (int step = 0; step < 300; ++step) {
    const auto x = torch::randn({32, 8}), y = x.sum(1, true) / 4;
    ddp.zero_grad();
    loss = torch::mse_loss(ddp.forward(x), y);
    loss.backward();  // gradients travel while backward still runs
    ddp.finish();     // averaged on every rank, or throws the root cause
    optimizer.step();
  }
  std::printf("rank %d of %d: loss %.4f, weights %.6f\n", world.rank(), world.size(), loss.item<double>(),
              model->parameters()[0].abs().sum().item<double>());
}
