// The order in which PyTorch shuffles is a fixed function of (size, seed): a Mersenne twister with 32-bit outputs,
// seeded with the low 32 bits of the seed, drives a forward Fisher-Yates shuffle: element i changes places with element
// i + draw % (size - i). The remainder's bias is part of the order.
#include "tutti/data/permutation.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "tutti/base/error.h"

namespace tutti {

std::vector<std::int64_t> random_permutation(std::size_t size, std::uint64_t seed) {
  TUTTI_REQUIRE(size <= std::numeric_limits<std::uint32_t>::max(), "random_permutation: ", size,
                " elements; expected fewer than 2^32");
  std::vector<std::int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 twister{std::uint32_t(seed)};
  for (std::size_t i = 0; i + 1 < size; ++i) std::swap(order[i], order[i + twister() % (size - i)]);
  return order;
}

}  // namespace tutti
