// The order in which PyTorch shuffles is a fixed function of (size, seed): a Mersenne twister with 32-bit outputs, seeded with
// the low 32 bits of the seed, drives a Fisher-Yates shuffle. Two variants exist and the size decides:
//
//   small (size < (2^32 - 1) / 20)  forward Fisher-Yates: element i changes places with element i + draw % (size - i). The
//                                   remainder's bias stays below 1/20, which is why the limit lies where it does.
//   large                           inside-out Fisher-Yates: element i is placed at draw64 % (i + 1), and what was there moves to
//                                   i. A 64-bit draw is two outputs, the first one on top.
#include "tutti/data/permutation.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kSmall = std::numeric_limits<std::uint32_t>::max() / 20;

void shuffle_forward(std::vector<std::int64_t>& order, std::mt19937& twister) {
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const std::size_t draw = twister();
    std::swap(order[i], order[i + draw % (order.size() - i)]);
  }
}

void shuffle_inside_out(std::vector<std::int64_t>& order, std::mt19937& twister) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint64_t high = twister(), low = twister();
    const std::size_t place = ((high << 32) | low) % (i + 1);
    order[i] = order[place];
    order[place] = std::int64_t(i);
  }
}

}  // namespace

std::vector<std::int64_t> random_permutation(std::size_t size, std::uint64_t seed) {
  std::vector<std::int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 twister{std::uint32_t(seed)};
  if (size < kSmall) {
    shuffle_forward(order, twister);
  } else {
    shuffle_inside_out(order, twister);
  }
  return order;
}

}  // namespace tutti
