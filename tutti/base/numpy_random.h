#pragma once
// numpy.random.RandomState, draw for draw: MT19937 seeded by one integer, doubles of 53 bits, normals by Marsaglia's
// polar method, integers by masking and rejection, Fisher and Yates from the end. The same seed and the same calls give
// the same numbers as numpy's legacy generator (which numpy has promised never to change).
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

// A value of 5 KB: a copy goes on from the same place. One thread at a time.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed);

  // The engine's next 32 bits.
  std::uint32_t bits() {
    if (next_ == kWords) refill(1);
    return words_[next_++];
  }
  // In [0, 1): rand(), random_sample(), random().
  double uniform() {
    const std::uint32_t high = bits() >> 5, low = bits() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  // As if uniform() had been called so many times.
  void skip_uniform(std::uint64_t count);
  // normal(mean, deviation). They come in pairs: the second of a pair is kept for the next call.
  double normal(double mean = 0, double deviation = 1) { return mean + deviation * standard_normal(); }
  // randint(low, high): low <= result < high. `high` must be above `low`.
  std::int64_t integer(std::int64_t low, std::int64_t high);
  // permutation(count): 0 .. count-1, shuffled.
  std::vector<std::int64_t> permutation(std::int64_t count);
  // shuffle() of a one-dimensional array.
  template <class T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[std::size_t(at_most(i))]);
  }

 private:
  static constexpr std::size_t kWords = 624;

  double standard_normal();
  std::uint64_t at_most(std::uint64_t limit);  // uniform in [0, limit]

  // Goes `blocks` blocks of kWords on, to the beginning of the last of them.
  void refill(std::uint64_t blocks);

  std::array<std::uint32_t, kWords> state_, words_;  // of this block, and the words that are made of it
  std::size_t next_ = kWords;
  std::optional<double> kept_normal_;
};

}  // namespace tutti
