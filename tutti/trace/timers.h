#pragma once
// Timers by name, for the few figures that a trainer prints every few steps. They are values of their owner (no
// tracing has to be on); metrics/timers_over_ranks.h has their minimum, maximum and mean over ranks.
//
//   Timers timers;
//   { auto timing = timers.time("forward"); ... }
//   for (const TimerReading& reading : timers.take()) ...
//
// With the clock of a GPU (stream_clock.h) they measure the work that was put on the stream while a timer ran. They
// never wait for it: take() has what has run so far, and a later take() the rest.
//
// Threads: one at a time.
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/trace/stream_clock.h"

namespace tutti {

class Timer {
 public:
  // kInvalidArgument is thrown where a timer starts that runs, or stops that does not.
  void start();
  void stop();
  bool runs() const { return runs_; }
  double seconds() const;  // of what has ended since the last take(), and of what runs (on a GPU, without that)
  std::int64_t count() const { return count_; }

 private:
  friend class Timers;
  Timer(std::string name, StreamClock* clock) : name_(std::move(name)), clock_(clock) {}
  void settle();
  std::string name_;
  StreamClock* clock_;  // null: the host's
  struct Interval {
    StreamMarkPtr begin, end;
  };
  std::deque<Interval> pending_;  // not yet in sum_
  StreamMarkPtr begin_mark_;
  Duration sum_{0};
  std::int64_t count_ = 0;
  Clock::time_point begin_{};
  bool runs_ = false;
};

struct TimerReading {
  std::string name;
  double seconds = 0;
  std::int64_t count = 0;
};

// A timer over ranks; those that do not have it do not count.
struct TimerSpread {
  std::string name;
  double least = 0, most = 0, mean = 0;  // seconds
  int slowest = 0;                       // the rank
  int ranks = 0;                         // that have it
};

class Timers {
 public:
  explicit Timers(std::shared_ptr<StreamClock> clock = nullptr) : clock_(std::move(clock)) {}

  // Runs until it goes.
  class Timing {
   public:
    explicit Timing(Timer& timer) : timer_(timer) { timer_.start(); }
    ~Timing() { timer_.stop(); }
    Timing(const Timing&) = delete;

   private:
    Timer& timer_;
  };

  // Made at its first use; stays where it is.
  Timer& operator[](std::string_view name);
  // One that measures the host's time on any device: reading data, saving.
  Timer& on_host(std::string_view name);
  [[nodiscard]] Timing time(std::string_view name) { return Timing((*this)[name]); }
  // What was measured since the last call, in the order of first use, without timers that did not run. Resets the
  // timers. A running timer is read up to now; of a GPU, when it has ended.
  std::vector<TimerReading> take();

 private:
  Timer& named(std::string_view name, StreamClock* clock);
  const std::shared_ptr<StreamClock> clock_;
  std::vector<std::unique_ptr<Timer>> timers_;
};

// readings[r]: of rank r. In the order in which the names first come up.
std::vector<TimerSpread> spread(const std::vector<std::vector<TimerReading>>& readings);
// "(min, max) time across ranks (ms):", then a line for each: the name, dots up to column 48, "(12.34, 15.60)".
std::string spread_text(const std::vector<TimerSpread>& timers);

}  // namespace tutti
