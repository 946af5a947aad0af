#pragma once
// Where in a run random numbers are used, in coordinates that do not depend on how many processes carry it: the same
// place has the same numbers on any grid and after any resume.
#include <cstdint>
#include <initializer_list>

namespace tutti {

// What is not used stays 0.
struct RandomPlace {
  std::int64_t step = 0;
  std::int64_t replica = 0;      // the data-parallel rank, or the logical one
  std::int64_t micro_batch = 0;  // within the step
  std::int64_t layer = 0;        // or whatever else tells two uses apart
  bool operator==(const RandomPlace&) const = default;
};

// A seed of its own for each place: `seed` itself for the place that is all 0, else all bits of all coordinates mixed.
// Two places have the same seed by chance only (2^-64).
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

}  // namespace tutti
