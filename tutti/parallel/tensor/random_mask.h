#pragma once
// Which elements a dropout drops, as a hash of their position: the same on any rank and in any order. On a GPU:
// dropout_mask.h.
#include <cstdint>
#include <span>

#include "tutti/base/random.h"

namespace tutti {

// Two rounds of a 32-bit hash ("lowbias32" of Wellons, 2018, public domain), keyed by the row; an element stays if its
// hash, a number in [0, 2^32), is not below p * 2^32. So p is exact to 2^-32.
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
    for_each(row_key, first, mask, [](T& element, T factor) { element = factor; });
  }
  // The same, times what is there.
  template <class T>
  void multiply(std::uint64_t row_key, std::uint64_t first, std::span<T> values) const {
    for_each(row_key, first, values, [](T& element, T factor) { element *= factor; });
  }

 private:
  template <class T, class Act>
  void for_each(std::uint64_t row_key, std::uint64_t first, std::span<T> elements, Act act) const {
    const auto a = std::uint32_t(row_key), b = std::uint32_t(row_key >> 32), from = std::uint32_t(first);
    const T scale = T(scale_);
    T* const data = elements.data();
    for (std::uint32_t i = 0; i < std::uint32_t(elements.size()); ++i)
      act(data[i], hash(hash((from + i) ^ a) + b) < below_ ? T(0) : scale);
  }
  static std::uint32_t hash(std::uint32_t x) {
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return x ^ x >> 16;
  }

  std::uint64_t seed_;
  std::uint32_t below_;
  double scale_;
};

}  // namespace tutti
