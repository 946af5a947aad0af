// AdamW whose work and memory are split over the ranks, in the stage that is asked for. The losses are the same in all
// of them; what a rank keeps is not.
//
//   tutti run -n 2 sharded_optimizer 1     the state is split
//   tutti run -n 2 sharded_optimizer 2     and the gradients
//   tutti run -n 2 sharded_optimizer 3     and the weights
#include <tutti/tutti.h>

#include <cstdio>
#include <string>

namespace {

// Learns to sort rows of 16 numbers.
torch::nn::Sequential make_model() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(16, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
                               torch::nn::ReLU(), torch::nn::Linear(512, 16));
}

// `model` is a DataParallel or a FullySharded.
template <class Model>
void train(const tutti::Group& world, Model& model, tutti::ShardedOptimizer& optimizer) {
  for (int step = 0; step <= 100; ++step) {
    torch::manual_seed(std::uint64_t(step * world.size() + world.rank()));
    const auto rows = torch::rand({32, 16});
    const auto sorted = std::get<0>(rows.sort());
    const auto loss = torch::mse_loss(model.forward(rows), sorted);
    loss.backward();
    const auto norm = optimizer.clip_grad_norm(1.0);
    if (norm.finite())
      optimizer.step();
    else
      std::fprintf(stderr, "step %d left out: %s\n", step, norm.non_finite.c_str());
    optimizer.zero_grad();
    const double average = tutti::all_reduce(world, loss.template item<double>()) / world.size();
    if (world.rank() == 0 && step % 25 == 0) std::printf("step %d, loss %.6f\n", step, average);
  }
  if (world.rank() == 0) std::printf("rank 0 keeps %zu bytes of state\n", optimizer.state_bytes());
}

// 0: there is no such stage.
int stage_of(const std::string& word) { return word == "1" ? 1 : word == "2" ? 2 : word == "3" ? 3 : 0; }

}  // namespace

int main(int argc, char** argv) {
  const int stage = argc == 2 ? stage_of(argv[1]) : 0;
  if (stage == 0) {
    const std::string given = argc == 2 ? "there is no stage '" + std::string(argv[1]) + "'" : "it takes one stage";
    std::fprintf(stderr, "sharded_optimizer: %s; give 1, 2 or 3\nusage: sharded_optimizer STAGE\n", given.c_str());
    return 2;
  }
  const auto world = tutti::init();
  const tutti::Compute compute(world);
  const tutti::AdamWOptions adamw{.lr = 2e-3};
  auto model = make_model();
  if (stage == 3) {
    tutti::FullySharded sharded(model, world);
    tutti::ShardedOptimizer optimizer(sharded, adamw);
    train(world, sharded, optimizer);
  } else {
    tutti::DataParallel ddp(model, world);
    tutti::ShardedOptimizer optimizer(ddp, adamw, {.stage = stage});
    train(world, ddp, optimizer);
  }
}
