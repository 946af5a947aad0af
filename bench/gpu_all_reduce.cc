// Times all_reduce of f32 tensors on GPUs, which LibTorch adds where the ranks copy directly (CUDA IPC). For
// scripts/on-gpu; `tutti bench --memory cuda` has no LibTorch, so its sums are staged.
//
//   tutti run -n 2 -- gpu_all_reduce 1048576 67108864
//
// Rank 0 prints a line of JSON for each size in bytes: the path, the seconds of the slowest rank (the median of the
// rounds), and whether the result was wrong.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/rank_device.h"

namespace {

constexpr int kWarmUp = 5, kRounds = 21;

// Seconds of the slowest rank.
double seconds_of_one(const tutti::Group& world, const at::Tensor& tensor) {
  tutti::barrier(world);
  const auto begin = tutti::now();
  tutti::all_reduce(world, tensor, tutti::ReduceOp::kAvg);
  double seconds = tutti::to_seconds(tutti::now() - begin);
  tutti::all_reduce(world, std::span(&seconds, 1), tutti::ReduceOp::kMax);
  return seconds;
}

void measure(const tutti::Group& world, c10::Device device, std::int64_t bytes) {
  // The average of equal numbers stays what it is.
  const at::Tensor tensor = at::full({bytes / 4}, 3.0, at::TensorOptions(at::kFloat).device(device));
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp + kRounds; ++i) {
    const double one = seconds_of_one(world, tensor);
    if (i >= kWarmUp) seconds.push_back(one);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  const bool wrong = !tensor.eq(3.0).all().item<bool>();
  const std::string path = world.plan_name({.kind = tutti::Kind::kAllReduce,
                                            .dtype = tutti::DType::kF32,
                                            .count = std::size_t(tensor.numel()),
                                            .device = device.index()});
  if (world.rank() == 0)
    std::printf("{\"bytes\": %lld, \"path\": \"%s\", \"seconds\": %.9f, \"wrong\": %s}\n",
                static_cast<long long>(bytes), path.c_str(), seconds[kRounds / 2], wrong ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) try {
  const tutti::Group world = tutti::init();
  const c10::Device device = tutti::rank_device(world, "cuda");
  for (int i = 1; i < argc; ++i) measure(world, device, std::atoll(argv[i]));
} catch (const std::exception& e) {
  std::fprintf(stderr, "gpu_all_reduce: %s\n", e.what());
  return 1;
}
