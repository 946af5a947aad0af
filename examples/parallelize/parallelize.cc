// Tutti chooses how a model is divided: it measures the blocks on these ranks, and takes the fastest of all stages,
// replicas and microbatches. The losses are the same for any number of ranks and any plan.
//
//   tutti run -n 2 parallelize
//   tutti run -n 4 parallelize 170        # a rank may use 170 KB
#include <tutti/tutti.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::int64_t kBatch = 64, kNumbers = 16, kWidth = 64;

// Learns to sort rows of 16 numbers.
torch::nn::Sequential make_model() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(kNumbers, kWidth), torch::nn::ReLU(),
                               torch::nn::Linear(kWidth, kWidth), torch::nn::ReLU(), torch::nn::Linear(kWidth, kWidth),
                               torch::nn::ReLU(), torch::nn::Linear(kWidth, kNumbers));
}

torch::Tensor inputs_of(int step) {
  torch::manual_seed(std::uint64_t(1000 + step));
  return torch::rand({kBatch, kNumbers});
}
torch::Tensor sorted(const torch::Tensor& rows) { return std::get<0>(rows.sort()); }

}  // namespace

int main(int argc, char** argv) {
  const auto world = tutti::init();
  const tutti::Compute compute(world);
  char* end = nullptr;
  const double kilobytes = argc > 1 ? std::strtod(argv[1], &end) : 0;
  if (argc > 1 && (*end != '\0' || !(kilobytes > 0 || kilobytes == 0))) {
    std::fprintf(stderr, "%s is no number of kilobytes\n", argv[1]);
    return 2;
  }

  const auto model = make_model();
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  auto training = tutti::parallelize(world, tutti::blocks_of(model), loss, tutti::AdamOptions{.lr = 2e-3}, inputs_of(0),
                                     sorted(inputs_of(0)), {.memory = kilobytes * 1e3});
  if (world.rank() == 0) std::printf("%s\n", tutti::to_string(training.plan()).c_str());
  for (int step = 0; step <= 100; ++step) {
    const auto rows = inputs_of(step);  // of which each rank computes a part
    const double mean = training.step(rows, sorted(rows));
    if (world.rank() == 0 && step % 25 == 0) std::printf("step %d, loss %.5f\n", step, mean);
  }
}
