#pragma once
// Which elements a dropout drops, as a hash of their position: the same on any rank and in any order. On a GPU:
// dropout_mask.h.
#include <cstdint>
#include <span>

#include "tutti/base/kernels/elementwise.h"
#include "tutti/base/random.h"

namespace tutti {

// An element stays if its hash is not below p * 2^32 (elementwise.h). So p is exact to 2^-32.
class RandomMask {
 public:
  RandomMask(double p, std::uint64_t seed)
      : seed_(seed), below_(std::uint32_t(p * 4294967296.0)), scale_(1 / (1 - p)) {}

  std::uint64_t seed() const { return seed_; }
  std::uint32_t below() const { return below_; }
  double scale() const { return scale_; }

  // What distinguishes rows: the position, or all that the row depends on.
  std::uint64_t row_key(std::uint64_t row, std::uint64_t of = 0) const {
    return seed_at(seed_, {.step = std::int64_t(row) + 1, .replica = std::int64_t(of)});
  }
  // 1 / (1 - p) for elements first, first + 1, ... of the row that stay, else 0.
  template <class T>
  void fill(std::uint64_t row_key, std::uint64_t first, std::span<T> mask) const {
    fill_mask({row_key, std::uint32_t(first), below_}, T(scale_), mask.data(), mask.size());
  }
  // The same, times what is there.
  template <class T>
  void multiply(std::uint64_t row_key, std::uint64_t first, std::span<T> values) const {
    multiply_by_mask({row_key, std::uint32_t(first), below_}, T(scale_), values.data(), values.size());
  }

 private:
  std::uint64_t seed_;
  std::uint32_t below_;
  double scale_;
};

}  // namespace tutti
