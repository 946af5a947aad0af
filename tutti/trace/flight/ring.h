#pragma once
// The last operations of one group on one rank, in memory of a fixed size: a part of the flight recorder.
//
// Operations are identified by the sequence number that the group gives them anyway, so no slot needs to be allocated:
// number n is in slot n modulo the capacity, where it replaces the one a lap before. Nothing here locks,
// allocates or makes a system call.
//
// Threads: any may write, one at a time for each number; completed_at_once() only the caller of started(). read()
// from any thread at any time gives an entry as it was at one moment, or none. Where more calls are outstanding at once
// than there are slots, the oldest are forgotten.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <vector>

#include "tutti/base/call_site.h"
#include "tutti/base/fd.h"
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti::trace {

// The clock of the records: cheap to read, and converted into a time only when a report is made.
class FlightClock {
 public:
  FlightClock();

  // The processor's time stamp where the kernel trusts it (clock source tsc), else CLOCK_MONOTONIC_COARSE, which moves
  // every few milliseconds. Never 0.
  std::uint64_t ticks() const {
#if defined(__x86_64__)
    if (stamps_) return __rdtsc();
#endif
    return coarse();
  }
  bool is_exact() const { return stamps_; }

  // Converts ticks, as of the moment in which it was made, into nanoseconds of CLOCK_MONOTONIC.
  class Scale {
   public:
    std::int64_t monotonic(std::uint64_t ticks) const {
      return now_ns_ - std::int64_t(double(std::int64_t(now_ticks_ - ticks)) * ns_per_tick_);
    }
    std::int64_t now() const { return now_ns_; }

   private:
    friend class FlightClock;
    std::uint64_t now_ticks_ = 0;
    std::int64_t now_ns_ = 0;
    double ns_per_tick_ = 1;
  };
  Scale scale() const;

 private:
  static std::uint64_t coarse();

  bool stamps_ = false;
  std::uint64_t first_ticks_ = 0;
  std::int64_t first_ns_ = 0;
};

enum class FlightState : std::uint8_t {
  kBeingWritten,     // readers never see it
  kScheduled,        // queued and numbered, waits for its turn
  kStarted,          // waits for peers, or moves data
  kCompleted,        // its end is known
  kFailed,           // likewise
  kCompletedAtOnce,  // within the first spin of the caller, which did not read the clock again
};

// The call. Only its writer and its readers know the meaning of the numbers.
struct FlightCall {
  std::uint64_t shape = 0;
  std::uint64_t count = 0;
  std::uint64_t extra = 0;
  CallSite site;
};

struct FlightEntry {
  std::uint64_t sequence = 0;
  FlightState state = FlightState::kBeingWritten;
  FlightCall call;
  std::uint64_t scheduled = 0, started = 0, ended = 0;  // FlightClock's ticks; 0: not, or not known
};

class FlightRing {
 public:
  // Room for `entries` or more. The address space is taken now, pages as they are first written; where there is none
  // the ring has room for one entry. `clock` outlives the ring.
  FlightRing(std::size_t entries, const FlightClock& clock);
  // In memory that is there already: bytes_for(entries) of zeros, which outlive the ring, as does the word that the
  // highest number is written to.
  FlightRing(std::byte* memory, std::size_t bytes, std::uint64_t* newest, const FlightClock& clock);
  FlightRing(const FlightRing&) = delete;
  static std::size_t bytes_for(std::size_t entries);

  void scheduled(std::uint64_t sequence, const FlightCall& call) { write(sequence, call, FlightState::kScheduled); }
  // Without having been scheduled.
  void started(std::uint64_t sequence, const FlightCall& call) { write(sequence, call, FlightState::kStarted); }
  void completed_at_once(std::uint64_t sequence) {
    slot(sequence).mark.store(mark_of(sequence, FlightState::kCompletedAtOnce), std::memory_order_release);
  }
  // A scheduled one has its turn; `shape` replaces the one it had, which may not have known the way.
  void started(std::uint64_t sequence, std::uint64_t shape);
  void ended(std::uint64_t sequence, bool well);

  // What lies in a slot's 64 bytes, copied from elsewhere; none: no call, or it was being written.
  static std::optional<FlightEntry> parse(const std::byte (&slot)[64]);
  std::size_t capacity() const { return mask_ + 1; }
  // None: something else is in its slot, or is being written there.
  std::optional<FlightEntry> read(std::uint64_t sequence) const;
  // By sequence; the entries with the `most` highest numbers.
  std::vector<FlightEntry> newest(std::size_t most) const;

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> mark;  // sequence << 3 | state
    std::atomic<std::uint64_t> shape, count, extra;
    std::atomic<std::uint64_t> site;
    std::atomic<std::uint64_t> scheduled, started, ended;
  };
  static_assert(sizeof(Slot) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

  static std::uint64_t mark_of(std::uint64_t sequence, FlightState state) {
    return sequence << 3 | std::uint64_t(state);
  }
  Slot& slot(std::uint64_t sequence) const { return slots_[sequence & mask_]; }
  std::optional<FlightEntry> read(const Slot& slot) const;
  template <class Act>
  void change(std::uint64_t sequence, FlightState to, const Act& act);

  // The mark says that the rest is in flux before any of it is, and what is there once all of it is.
  void write(std::uint64_t sequence, const FlightCall& call, FlightState state) {
    Slot& s = slot(sequence);
    s.mark.store(mark_of(sequence, FlightState::kBeingWritten), std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    s.shape.store(call.shape, std::memory_order_relaxed);
    s.count.store(call.count, std::memory_order_relaxed);
    s.extra.store(call.extra, std::memory_order_relaxed);
    s.site.store(call.site.bits(), std::memory_order_relaxed);
    const bool queued = state == FlightState::kScheduled;
    s.scheduled.store(queued ? clock_.ticks() : 0, std::memory_order_relaxed);
    s.started.store(queued ? 0 : clock_.ticks(), std::memory_order_relaxed);
    s.mark.store(mark_of(sequence, state), std::memory_order_release);
    std::atomic_ref(*newest_).store(sequence, std::memory_order_relaxed);
    __builtin_prefetch(&slot(sequence + 1), 1);  // the next call's, long out of the first cache
  }

  const FlightClock& clock_;
  Mapping memory_;
  Slot spare_{};
  std::uint64_t own_newest_ = 0;
  std::uint64_t* newest_ = &own_newest_;
  Slot* slots_ = &spare_;
  std::uint64_t mask_ = 0;
};

}  // namespace tutti::trace
