#pragma once
// The seconds of a step that "ms/it" counts, as in dlrm_s_pytorch.py. A value apart from the loop, so that tests need
// no clock.
#include <optional>

#include "tutti/base/clock.h"

namespace tutti::dlrm {

enum class IterationSpan {
  kStep,         // from a batch that was read to the end of its step
  kBatchToBatch  // --mlperf-logging: from the batch before to this one, reading included
};

class IterationTimer {
 public:
  explicit IterationTimer(IterationSpan span) : span_(span) {}

  // A batch was read.
  void begin(Clock::time_point at) {
    since_last_ = begin_ ? to_seconds(at - *begin_) : 0;
    begin_ = at;
  }
  // Its step has ended. The seconds that count.
  double end(Clock::time_point at) const {
    return span_ == IterationSpan::kBatchToBatch ? since_last_ : to_seconds(at - *begin_);
  }
  // What comes before the next batch (a test, a new epoch) is no part of a step. The next batch counts 0 from batch to
  // batch, as in the reference.
  void pause() { begin_.reset(); }

 private:
  IterationSpan span_;
  std::optional<Clock::time_point> begin_;
  double since_last_ = 0;
};

}  // namespace tutti::dlrm
