// std::mt19937 is specified to the bit and seeded as numpy seeds by one integer, so only what numpy makes of the 32-bit
// words is written here: which words a draw takes, in which order, and when it rejects. Rejection masks a word with the
// smallest 2^k - 1 that covers the range and draws again while the result is too large; ranges above 32 bits take two
// words, the high one first.
#include "tutti/base/numpy_random.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace tutti {

double NumpyRandom::standard_normal() {
  if (kept_normal_) return *std::exchange(kept_normal_, std::nullopt);
  double x, y, square;
  do {
    x = 2.0 * uniform() - 1.0;
    y = 2.0 * uniform() - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(square) / square);
  kept_normal_ = factor * x;
  return factor * y;
}

std::uint64_t NumpyRandom::at_most(std::uint64_t limit) {
  if (limit == 0) return 0;
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(limit);
  std::uint64_t value;
  do {
    value = bits();
    if (limit > std::numeric_limits<std::uint32_t>::max()) value = value << 32 | bits();
    value &= mask;
  } while (value > limit);
  return value;
}

std::int64_t NumpyRandom::integer(std::int64_t low, std::int64_t high) {
  return std::int64_t(std::uint64_t(low) + at_most(std::uint64_t(high) - std::uint64_t(low) - 1));
}

std::vector<std::int64_t> NumpyRandom::permutation(std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t(0));
  shuffle(std::span(order));
  return order;
}

}  // namespace tutti
