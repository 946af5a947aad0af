// MT19937 (M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 8, 1998) generates 624 words at a time, in loops
// that the compiler can vectorize. The speed matters for random click data; std::mt19937 took twice as long. Skipped
// blocks do not generate words.
//
// How numpy uses the words: a double takes two, the high one first. Rejection masks a word with the smallest 2^k - 1
// that covers the range, and draws again while the result is too large. Ranges above 32 bits take two words.
#include "tutti/base/random.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti {

namespace {

constexpr std::size_t kDistance = 397;

std::uint32_t twist(std::uint32_t high, std::uint32_t low, std::uint32_t far) {
  const std::uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);
  return far ^ (mixed >> 1) ^ (-(mixed & 1) & 0x9908b0dfu);
}

}  // namespace

NumpyRandom::NumpyRandom(std::uint32_t seed) {
  state_[0] = seed;
  for (std::uint32_t i = 1; i < kWords; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
}

void NumpyRandom::refill(std::uint64_t blocks) {
  std::uint32_t* const s = state_.data();
  for (; blocks > 0; --blocks) {
    for (std::size_t i = 0; i < kWords - kDistance; ++i) s[i] = twist(s[i], s[i + 1], s[i + kDistance]);
    for (std::size_t i = kWords - kDistance; i < kWords - 1; ++i)
      s[i] = twist(s[i], s[i + 1], s[i + kDistance - kWords]);
    s[kWords - 1] = twist(s[kWords - 1], s[0], s[kDistance - 1]);
  }
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint32_t word = s[i];
    word ^= word >> 11;
    word ^= word << 7 & 0x9d2c5680u;
    word ^= word << 15 & 0xefc60000u;
    words_[i] = word ^ word >> 18;
  }
  next_ = 0;
}

void NumpyRandom::skip_uniform(std::uint64_t count) {
  const std::uint64_t words = 2 * count, left = kWords - next_;
  if (words <= left) {
    next_ += std::size_t(words);
    return;
  }
  const std::uint64_t beyond = words - left;  // the end of this block; at least 1
  refill((beyond + kWords - 1) / kWords);
  next_ = std::size_t((beyond - 1) % kWords) + 1;
}

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
