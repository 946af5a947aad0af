// Page 5 of the tutorial: training jobs with one mistake each, for their error messages.
//
//   tutti run -n 2 mistakes MISTAKE
#include <tutti/tutti.h>

#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "spirals.h"

int main(int argc, char** argv) {
  const std::string mistake = argc == 2 ? argv[1] : "";
  if (mistake != "none" && mistake != "throw" && mistake != "nan" && mistake != "differ" && mistake != "hang" &&
      mistake != "unused") {
    std::fprintf(stderr, "usage: mistakes none|throw|nan|differ|hang|unused\n");
    return 2;
  }
  const tutti::Group world = tutti::init();
  const tutti::Compute compute(world);
  const Spirals train(6000, 1);
  torch::manual_seed(0);
  auto net = std::make_shared<Net>();
  if (mistake == "unused") net->register_module("extra", torch::nn::Linear(2, 2));
  tutti::DataParallel ddp(net, world);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  tutti::DistributedSampler sampler(std::size_t(train.size()), world);

  for (int step = 1; step <= 20; ++step) {
    world.step(step);  // so that reports name the step
    auto batch = train.batch(sampler.take(64));
    const bool now = world.rank() == 1 && step == 10;
    if (now && mistake == "throw") throw std::runtime_error("cannot read sample 640");
    if (now && mistake == "nan") batch.x[0][0] = std::numeric_limits<float>::quiet_NaN();
    if (now && mistake == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
    ddp.zero_grad();
    const auto loss = torch::cross_entropy_loss(ddp.forward(batch.x), batch.y);
    loss.backward();
    ddp.finish();
    optimizer.step();
    // Only rank 0 logs, but a collective needs all ranks.
    if (mistake == "differ" && step == 10 && world.rank() == 0)
      std::printf("mean loss %.3f\n", tutti::all_reduce(world, loss.item<double>()) / world.size());
  }
}
