// examples/ddp with checkpoints. Killed, stopped or preempted, and started again, also on another number of ranks, it
// resumes after the newest checkpoint:
//
//   tutti run -n 2 --max-restarts 3 checkpoint FOLDER STEPS
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const tutti::Group world = tutti::init();
  const std::int64_t steps = argc > 2 ? std::atoll(argv[2]) : 300;
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  tutti::DataParallel ddp(model, world);
  tutti::Sgd optimizer(*model, {.lr = 0.1, .momentum = 0.9});
  const auto x = torch::randn({4096, 8}), y = x.sum(1, true) / 4;  // the dataset
  tutti::Loader loader(tutti::BatchSampler(world, {.dataset_size = 4096, .batch_size = 32}),
                       [](const std::vector<std::int64_t>& samples) { return torch::tensor(samples); });

  tutti::Checkpointer checkpoints(world, {.folder = argc > 1 ? argv[1] : "checkpoints", .interval = 50, .keep = 2});
  checkpoints.add("model", model);
  checkpoints.add("optimizer", optimizer);
  checkpoints.add("loader", loader);
  for (std::int64_t step = checkpoints.resume().step; step < steps;) {
    const auto samples = *loader.next();
    ddp.zero_grad();
    auto loss = torch::mse_loss(ddp.forward(x.index({samples})), y.index({samples}));
    loss.backward();
    ddp.finish();
    optimizer.step();
    ++step;
    if (world.rank() == 0 && step % 10 == 0) std::printf("step %d: loss %.9g\n", int(step), loss.item<double>());
    std::fflush(stdout);
    if (checkpoints.after(step)) return tutti::kLeftEarly;  // saves every 50 steps, and where the job is to stop
  }
  checkpoints.finish();  // the last step is on disk
}
