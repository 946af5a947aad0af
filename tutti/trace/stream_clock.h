#pragma once
// The time of work that runs behind the host, on a GPU: the host only puts kernels on a stream, so its own clock
// measures nothing. A mark is put on the stream, and has a time once all work before it has run. Nothing here waits.
//
// tensor/device_clock.h makes the clock of a GPU. A measurement never fails a run: what a broken device cannot measure
// has no mark and no time, and the next call on the device reports what is wrong with it.
#include <memory>
#include <optional>

#include "tutti/base/clock.h"

namespace tutti {

// A position on a stream. Goes back to the pool of its clock, which stays until then.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  // Whether all work before it has run. Looks without waiting.
  virtual bool has_passed() = 0;
};
using StreamMarkPtr = std::shared_ptr<StreamMark>;  // null: could not be put

// Threads: any.
class StreamClock {
 public:
  virtual ~StreamClock() = default;
  // Marks the current stream of this thread.
  virtual StreamMarkPtr mark() = 0;
  // Between two marks of this clock that have passed; none if the device cannot tell.
  virtual std::optional<Duration> between(StreamMark& from, StreamMark& to) = 0;
  // When a mark that has passed was reached, on the clock of the host; within some microseconds.
  virtual std::optional<Clock::time_point> host_time(StreamMark& mark) = 0;
};

}  // namespace tutti
