#pragma once
// The progress page: what a rank is doing, in memory that it shares with its agent, so that the agent knows of a rank
// that hangs, and of one that was killed in the middle of a call, what it did last.
//
// The agent makes a memfd (create()) and hands the descriptor to the worker, which maps it (open()); the worker writes
// through this class, the agent reads through ProgressReader. The rings of the flight recorder lie in the same memory,
// so a call costs what its flight record costs, and nothing besides.
//
// Layout: ProgressLayout at 0; from kRingsBegin on, for each of its groups, room for two rings of `ring_bytes`. Words
// of 32 and 64 bits are written whole; all else before the word that says it is there. The memory never shrinks.
//
// Threads: any may call any member.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"

namespace tutti::trace {

struct FlightGroup;  // trace/flight/dump.h

// A stack as a signal handler can write it: addresses, and the lines of /proc/self/maps that they fall into.
struct ProgressStack {
  static constexpr std::uint32_t kFrames = 64;
  static constexpr std::size_t kMaps = 12 * 1024;
  std::uint32_t number;  // counts up, last, when all of the rest is there; 0: none yet
  std::int32_t signal;   // why it was taken
  std::int32_t thread;   // the kernel's number
  std::uint32_t count;
  std::uint64_t address;  // of the fault: siginfo's si_addr
  std::uint64_t frames[kFrames];
  char maps[kMaps];  // text, ends with '\0'
};

struct ProgressLayout {
  static constexpr std::uint64_t kMagic = 0x3267702069747475;  // "utti pg2": another layout, another number
  static constexpr int kGroups = 96;
  static constexpr std::size_t kName = 48;
  static constexpr std::size_t kMessage = 2048;
  static constexpr std::size_t kAlarm = 1024;
  static constexpr std::uint64_t kRingsBegin = 64 * 1024;

  struct Group {
    // The highest number of a call in each ring, under way or ended: a hint.
    alignas(64) std::uint64_t newest[2];  // collectives, exchanges
    alignas(64) std::uint32_t state;      // 0: free, 1: in use, 2: the rank has left the group
    std::int32_t rank;                    // of this rank in the group
    std::int32_t size;
    std::uint64_t id;  // the same on every rank
    char name[kName];
  };

  std::uint64_t magic;
  std::uint32_t stop_request;  // the agent's: the number of the signal that asked the job to save and leave; 0: none
  std::uint32_t exact_clock;   // FlightClock::is_exact()

  alignas(64) std::int32_t pid;  // of the rank that wrote here last; 0: init() was not called yet
  std::int32_t rank, world_size;
  std::uint32_t joined;        // the world stands
  std::uint32_t called;        // init() was called, though it may not know the rank yet
  std::uint32_t lost;          // 1 + the rank of the world for want of which a call of this one failed; 0: none
  std::uint32_t echoes;        // a call of this rank failed because another rank had ended its group
  std::uint64_t ring_entries;  // of each ring; 0: the flight recorder is off

  alignas(64) std::int64_t step;  // valid if steps is not 0
  std::int64_t step_began;        // nanoseconds of CLOCK_MONOTONIC
  std::uint64_t steps;            // how many have begun in this process

  alignas(64) std::uint32_t message_size;  // the rank's own message about its failure
  char message[kMessage];

  alignas(64) std::uint32_t alarm_size;  // shown to people while it runs; 0: nothing
  char alarm[kAlarm];

  Group groups[kGroups];
  ProgressStack crash;  // of the thread that a fatal signal met
  ProgressStack look;   // of the main thread, as of the last SIGUSR2
};
static_assert(sizeof(ProgressLayout) <= ProgressLayout::kRingsBegin);

class ProgressPage {
 public:
  // The agent: a fresh page. The descriptor closes at execve() unless it is handed on by its number.
  static Result<Fd> create();
  // The worker: maps the page behind the descriptor, which is the caller's still. kMismatch: that is no such page.
  static Result<std::unique_ptr<ProgressPage>> open(int fd);
  // A process-private page, used without an agent.
  static Result<std::unique_ptr<ProgressPage>> make_private();
  ~ProgressPage();

  void set_called();                    // init() has begun
  void join(int rank, int world_size);  // resets rings and steps of an earlier user
  void set_joined();
  void begin_step(std::int64_t step);
  // A call of this rank failed, and not by its own fault: that rank is gone, or some rank has ended the group.
  void set_lost(int rank);
  void set_echoes();
  std::int64_t step() const;      // that begun last; -1: none
  int stop_request() const;       // 0: none; else a signal's number
  void request_stop(int signal);  // of a page of one's own; the agent writes through ProgressReader
  void set_message(std::string_view text);
  void set_alarm(std::string_view text);  // empty: none any more

  // A group's slot in the page: two rings, and what they are of. Freed with the last copy.
  class GroupSlot {
   public:
    GroupSlot(ProgressPage& page, int index, Mapping rings[2])
        : page_(page), index_(index), rings_{std::move(rings[0]), std::move(rings[1])} {}
    GroupSlot(const GroupSlot&) = delete;
    ~GroupSlot() { page_.release(index_); }
    Mapping& ring(int which) { return rings_[which]; }
    std::uint64_t* newest(int which) { return &page_.layout_->groups[index_].newest[which]; }
    void left();

   private:
    ProgressPage& page_;
    int index_;
    Mapping rings_[2];
  };
  // Null where there is no room (then the group's calls are on record in this process only).
  std::unique_ptr<GroupSlot> add(const FlightGroup& group, std::size_t ring_bytes);

  ProgressLayout& layout() { return *layout_; }  // for signal handlers

 private:
  ProgressPage(Fd fd, Mapping memory);
  void release(int index);

  const Fd fd_;
  const Mapping memory_;
  ProgressLayout* const layout_;
  Mutex mutex_;
  std::uint64_t ring_bytes_ TUTTI_GUARDED_BY(mutex_) = 0;
};

}  // namespace tutti::trace
