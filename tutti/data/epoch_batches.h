#pragma once
// A DistributedSampler's epoch in batches, as a Loader takes them.
#include <cstddef>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/sampler.h"

namespace tutti {

class EpochBatches {
 public:
  using State = SamplerState;

  // drop_last: an epoch's last batch is dropped if it is smaller than the others. Throws Exception where batch_size is
  // 0, as a global batch over more ranks than it has samples may give.
  EpochBatches(DistributedSampler sampler, std::size_t batch_size, bool drop_last = true)
      : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
    TUTTI_REQUIRE(batch_size > 0, "EpochBatches: a batch of 0 samples; expected 1 or more");
  }

  // None at the end of the epoch.
  std::vector<std::int64_t> take() {
    if (drop_last_ && sampler_.remaining() < batch_size_) return {};
    return sampler_.take(batch_size_);
  }
  void set_epoch(std::int64_t epoch) { sampler_.set_epoch(epoch); }
  const State& state() const { return sampler_.state(); }
  void restore(const State& state) { sampler_.restore(state); }

 private:
  DistributedSampler sampler_;
  std::size_t batch_size_;
  bool drop_last_;
};

}  // namespace tutti
