#pragma once
// The batches of a process that computes for several logical ranks: one of each in turn.
#include <cstddef>
#include <utility>
#include <vector>

#include "tutti/data/epoch_batches.h"

namespace tutti {

// A Loader's sampler. All `ranks` have the same number of batches.
class TurnBatches {
 public:
  struct State {
    std::vector<SamplerState> ranks;
    std::size_t next = 0;
  };

  explicit TurnBatches(std::vector<EpochBatches> ranks) : ranks_(std::move(ranks)) {}

  std::vector<std::int64_t> take() {
    auto samples = ranks_[next_].take();
    next_ = (next_ + 1) % ranks_.size();
    return samples;
  }
  void set_epoch(std::int64_t epoch) {
    for (auto& rank : ranks_) rank.set_epoch(epoch);
    next_ = 0;
  }
  State state() const {
    State state{.ranks = {}, .next = next_};
    for (const auto& rank : ranks_) state.ranks.push_back(rank.state());
    return state;
  }
  void restore(const State& state) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i].restore(state.ranks[i]);
    next_ = state.next;
  }

 private:
  std::vector<EpochBatches> ranks_;
  std::size_t next_ = 0;
};

}  // namespace tutti
