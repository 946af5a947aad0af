// tutti::spawn() in a program that links LibTorch: Debian's OpenBLAS has started its threads before main().
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tutti/launch/spawn.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

// Products that are large enough for OpenBLAS to divide among threads.
double sum_of_a_product(double factor) {
  return torch::full({256, 256}, factor).mm(torch::ones({256, 256})).sum().item<double>();
}

TEST(SpawnWithLibTorch, RanksComputeAndMeet) {
  constexpr double kSum = 256.0 * 256 * 256;
  spawn(2, [](int rank) {
    const Group world = init();
    const torch::Tensor sum = torch::full({1}, sum_of_a_product(rank + 1));
    all_reduce(world, sum);
    if (sum.item<double>() != 3 * kSum) throw std::runtime_error("the sum is " + std::to_string(sum.item<double>()));
  });
  spawn(1, [](int) {});  // again: nothing of the first is left
}

}  // namespace
}  // namespace tutti
