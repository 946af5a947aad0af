#pragma once
// Random numbers: seeds that depend on logical coordinates only, and NumPy's legacy generator.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

// The place in a run where random numbers are used. The coordinates do not depend on the number of processes. So a
// place has the same numbers on any grid and after any resume. Unused coordinates stay 0.
struct RandomPlace {
  std::int64_t step = 0;
  std::int64_t replica = 0;      // the data-parallel rank, real or logical
  std::int64_t micro_batch = 0;  // within the step
  std::int64_t layer = 0;        // or another number that distinguishes two uses
  bool operator==(const RandomPlace&) const = default;
};

// The seed of a place: `seed` itself if all coordinates are 0, otherwise a hash of `seed` and the coordinates. Two
// places have the same seed with probability 2^-64.
constexpr std::uint64_t seed_at(std::uint64_t seed, const RandomPlace& place) {
  if (place == RandomPlace{}) return seed;
  for (const std::int64_t coordinate : {place.step, place.replica, place.micro_batch, place.layer}) {
    // The finalizer of MurmurHash3 (public domain) as in SplitMix64 (Steele, Lea and Flood, 2014).
    seed += std::uint64_t(coordinate) * 0xBF58476D1CE4E5B9u + 0x9E3779B97F4A7C15u;
    seed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9u;
    seed = (seed ^ seed >> 27) * 0x94D049BB133111EBu;
    seed ^= seed >> 31;
  }
  return seed;
}

// numpy.random.RandomState, draw for draw: MT19937 seeded by one integer, doubles of 53 bits, normals by Marsaglia's
// polar method, integers by masking and rejection, Fisher-Yates shuffles from the end. The same seed and calls give the
// same numbers as numpy's legacy generator, which numpy has promised never to change. A value of 5 KB; a copy continues
// at the same place. Threads: one at a time.
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
  // Skips `count` calls of uniform().
  void skip_uniform(std::uint64_t count);
  // normal(mean, deviation). Normals are generated in pairs; the second one is kept for the next call.
  double normal(double mean = 0, double deviation = 1) { return mean + deviation * standard_normal(); }
  // randint(low, high): low <= result < high. Requires high > low.
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

  // Advances by `blocks` blocks of kWords, to the start of the last one.
  void refill(std::uint64_t blocks);

  std::array<std::uint32_t, kWords> state_, words_;  // of this block, and the words generated from it
  std::size_t next_ = kWords;
  std::optional<double> kept_normal_;
};

}  // namespace tutti
