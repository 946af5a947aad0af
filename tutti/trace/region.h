#pragma once
// Labelled regions of a program: what took how long, on which thread, within what.
//
//   start_trace();
//   { Region region("DLRM forward"); ... }
//   Trace trace = stop_trace();       // -> profile_table.h, chrome_trace.h
//
// A process traces as a whole or not at all. While it does not, a Region costs a relaxed load; while it does, two looks
// at the clock and about 0.2 us. Times are of the wall clock (monotonic), not of the processor.
//
// Threads: regions may be on any; those of a thread nest. start_trace() and stop_trace(): one thread at a time. What
// is open when the trace starts or stops is not in it.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"

namespace tutti {

struct TraceOptions {
  // Of each thread; what is more is counted, but not on the time line. 0: totals only.
  std::size_t most_events = std::size_t(1) << 20;
};

// All regions of one name (and detail), of all threads.
struct RegionTotals {
  std::string name, detail;
  std::int64_t calls = 0;
  Duration total{0};     // from begin to end
  Duration self{0};      // of it: not in regions within
  bool is_span = false;  // of record_span(): no thread's time
  Duration shortest{0}, longest{0};
};

// One region, on the time line of its thread.
struct RegionEvent {
  std::uint32_t which = 0;     // in Trace::totals
  Duration begin{0}, took{0};  // since Trace::begin
};

inline constexpr int kFirstLane = 1 << 30;  // beyond any thread's id

struct ThreadEvents {
  int id = 0;  // of the system; of a lane of spans, which is no thread: kFirstLane or more
  std::string name;
  std::vector<RegionEvent> events;  // in the order of their ends
  std::uint64_t left_out = 0;       // beyond TraceOptions::most_events
};

struct Trace {
  std::vector<RegionTotals> totals;
  std::vector<ThreadEvents> threads;  // "main" first, then by id
  Clock::time_point begin{};          // when it started; on one host the same clock for all processes
  double wall_clock = 0;              // the same moment in seconds since 1970
  Duration took{0};
};

// Begins a new trace; one that is under way is thrown away.
void start_trace(const TraceOptions& options = {});
// Ends it. Without one under way: an empty trace.
Trace stop_trace();
// `drain` is called when a trace ends, before it is collected: it records the spans that have waited for their times
// (tensor/device_region.h). One for the process.
void set_trace_drain(void (*drain)());

namespace detail {
extern std::atomic<bool> tracing;
class ThreadLog;
}  // namespace detail

inline bool is_tracing() { return detail::tracing.load(std::memory_order_relaxed); }

// From its construction to its destruction, on one thread. `name` is a literal, or stays as long as the process.
class Region {
 public:
  explicit Region(const char* name) {
    if (is_tracing()) [[unlikely]]
      open(name, {});
  }
  // `detail` is called only while tracing, and returns a std::string that distinguishes regions of one name, such as
  // the shapes of the inputs.
  template <class Detail>
  Region(const char* name, Detail&& detail) {
    if (is_tracing()) [[unlikely]]
      open(name, std::forward<Detail>(detail)());
  }
  ~Region() {
    if (log_) [[unlikely]]
      close();
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  void open(const char* name, std::string detail);
  void close();

  detail::ThreadLog* log_ = nullptr;  // null: not traced
  std::uint64_t trace_ = 0;           // which trace it is in
};

// Records an operation that ran from `begin` to `end` on no single thread: one thread started it, and another carried
// it on. The spans of a lane have their own line below the threads. They should not overlap, but one may be within
// another. Any thread. Call it when the operation has ended, and only if is_tracing(). Operations that began before the
// trace are not recorded.
void record_span(const std::string& lane, const char* name, std::string detail, Clock::time_point begin,
                 Clock::time_point end);

}  // namespace tutti
