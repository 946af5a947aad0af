#pragma once
// The samples that a rank trains on: PyTorch's DistributedSampler, index for index, and resumable within an epoch.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // must be the same on every rank
  // Drops the samples that do not fill a round of all ranks. If false, the first samples are repeated to fill it.
  bool drop_last = false;
};

// The position of a sampler: enough to resume within an epoch, also with another number of ranks.
struct SamplerState {
  std::int64_t epoch = 0;
  std::uint64_t position = 0;  // positions in the epoch's order that all ranks together have passed
  bool operator==(const SamplerState&) const = default;
};

// The order of an epoch is random_permutation(size, seed + epoch), or 0 .. size-1. It is padded with samples from its
// start (or cut, with drop_last) to a multiple of the world size. Rank r takes the positions r, r + world, r + 2 world,
// ...
//
// Call set_epoch() before every epoch; otherwise the order repeats. Not thread-safe. Throws Exception for a rank
// outside the world.
class DistributedSampler {
 public:
  DistributedSampler(std::size_t dataset_size, int rank, int world_size, SamplerOptions options = {});
  // Takes a Group, or any other type with rank() and size().
  template <class Ranks>
    requires requires(const Ranks& ranks) { int(ranks.rank()), int(ranks.size()); }
  DistributedSampler(std::size_t dataset_size, const Ranks& ranks, SamplerOptions options = {})
      : DistributedSampler(dataset_size, ranks.rank(), ranks.size(), options) {}

  // Samples per rank in a whole epoch; the same on every rank.
  std::size_t size() const { return rounds(0); }
  // Samples of this rank that are left in this epoch.
  std::size_t remaining() const { return rounds(state_.position); }
  // Takes the next samples of this rank, at most `count`; none at the end of the epoch.
  std::vector<std::int64_t> take(std::size_t count);
  // The remaining() samples, without taking them.
  std::vector<std::int64_t> indices() const { return peek(remaining()); }

  // Starts the epoch at its first sample.
  void set_epoch(std::int64_t epoch);
  const SamplerState& state() const { return state_; }
  // Resumes at the position of another sampler with the same dataset, seed and options.
  void restore(const SamplerState& state);

 private:
  std::size_t rounds(std::uint64_t position) const;
  std::vector<std::int64_t> peek(std::size_t count) const;
  void draw_order();

  std::size_t dataset_size_;
  std::size_t rank_;
  std::size_t world_size_;
  SamplerOptions options_;
  SamplerState state_;
  std::vector<std::int64_t> order_;  // of this epoch; empty if not shuffled: the identity
};

}  // namespace tutti
