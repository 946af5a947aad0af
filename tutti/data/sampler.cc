// PyTorch implements the sampler with list operations: shuffle, append a prefix (repeatedly if needed), slice with a
// stride. This class computes the same indices without the lists. The sample at position p of the endless order is
// order[p % size]. A round is world_size positions. An epoch is the number of rounds that covers the dataset (rounded
// up, or down with drop_last). So the state of a sampler is one number, the positions passed. A world of another size
// can resume from it without losing or repeating a sample.
#include "tutti/data/sampler.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/data/permutation.h"

namespace tutti {

DistributedSampler::DistributedSampler(std::size_t dataset_size, int rank, int world_size, SamplerOptions options)
    : dataset_size_(dataset_size), rank_(std::size_t(rank)), world_size_(std::size_t(world_size)), options_(options) {
  TUTTI_REQUIRE(world_size > 0 && rank >= 0 && rank < world_size, "DistributedSampler: rank ", rank, " of a world of ",
                world_size, " ranks; expected 0 <= rank < world size");
  draw_order();
}

std::size_t DistributedSampler::rounds(std::uint64_t position) const {
  const std::size_t left = position < dataset_size_ ? dataset_size_ - position : 0;
  return options_.drop_last ? left / world_size_ : (left + world_size_ - 1) / world_size_;
}

std::vector<std::int64_t> DistributedSampler::peek(std::size_t count) const {
  std::vector<std::int64_t> samples(std::min(count, remaining()));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t place = (state_.position + i * world_size_ + rank_) % dataset_size_;
    samples[i] = order_.empty() ? std::int64_t(place) : order_[place];
  }
  return samples;
}

std::vector<std::int64_t> DistributedSampler::take(std::size_t count) {
  auto samples = peek(count);
  state_.position += samples.size() * world_size_;
  return samples;
}

void DistributedSampler::set_epoch(std::int64_t epoch) { restore({.epoch = epoch, .position = 0}); }

void DistributedSampler::restore(const SamplerState& state) {
  const bool other_order = state.epoch != state_.epoch;
  state_ = state;
  if (other_order) draw_order();
}

void DistributedSampler::draw_order() {
  if (options_.shuffle) order_ = random_permutation(dataset_size_, options_.seed + std::uint64_t(state_.epoch));
}

}  // namespace tutti
