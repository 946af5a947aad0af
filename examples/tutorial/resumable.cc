// Page 4 of the tutorial: the program of page 2 with checkpoints. Started again, it resumes.
//
//   tutti run -n 2 --max-restarts 3 resumable FOLDER EPOCHS [STEP]
//
// With STEP, rank 1 kills itself before that step, once, so that you see a restart.
#include <tutti/tutti.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "spirals.h"

constexpr int kBatch = 64;  // samples per step, over all ranks

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: resumable FOLDER EPOCHS [STEP]\n"), 2;
  const std::int64_t epochs = std::atoll(argv[2]), crash = argc > 3 ? std::atoll(argv[3]) : 0;
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");

  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  const Spirals train(6000, 1);
  torch::manual_seed(0);
  auto net = std::make_shared<Net>();
  tutti::DataParallel ddp(net, world);
  tutti::AdamW optimizer(*net, {.lr = 3e-3});
  const tutti::BatchSamplerOptions sampling{.dataset_size = std::size_t(train.size()),
                                            .batch_size = std::size_t(kBatch / world.size())};
  tutti::Loader loader(tutti::BatchSampler(world, sampling),
                       [&](const std::vector<std::int64_t>& samples) { return train.batch(samples); });

  tutti::Checkpointer checkpoints(world, {.folder = argv[1], .interval = 50, .keep = 2});
  checkpoints.add("model", net);
  checkpoints.add("optimizer", optimizer);
  checkpoints.add("loader", loader);
  std::int64_t step = checkpoints.resume().step;
  if (world.rank() == 0) std::printf("starting at step %lld\n", (long long)step);

  const std::int64_t steps = epochs * (train.size() / kBatch);
  while (step < steps) {
    world.step(++step);  // so that reports name the step
    if (step == crash && world.rank() == 1 && std::atoi(restarts ? restarts : "0") == 0) std::raise(SIGKILL);
    const auto batch = *loader.next();
    ddp.zero_grad();
    const auto loss = torch::cross_entropy_loss(ddp.forward(batch.x), batch.y);
    loss.backward();
    ddp.finish();
    optimizer.step();
    if (world.rank() == 0 && step % 50 == 0) std::printf("step %lld: loss %.4f\n", (long long)step, loss.item<double>());
    std::fflush(stdout);
    if (checkpoints.after(step)) return tutti::kLeftEarly;  // asked to stop, and saved
  }
  checkpoints.finish();
}
