#pragma once
// This rank's side of the shared-memory path of one group: its call lines, its bells, and the addresses of buffers.
#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/comm/heap.h"
#include "tutti/comm/shared_memory/control.h"
#include "tutti/comm/shared_memory/group_memory.h"
#include "tutti/transport/shm/host.h"

namespace tutti::comm {

// A rank that contributes at most this many bytes puts all of them in its line.
inline constexpr std::size_t kInlineBytes = kLinePayload;
// A rank's staging memory in a group: pieces through which private buffers are transferred.
inline constexpr std::size_t kPieceBytes = std::size_t(128) << 10;
inline constexpr int kPieces = 3;
inline constexpr std::size_t kSlotsBytes = kPieces * kPieceBytes;

// How often a spinning rank checks whether it keeps a peer from the core.
inline constexpr int kTriesPerCoreCheck = 16;

// Scratch arrays for an operation, with one entry per rank. A group runs its collectives one after another, so they
// share these arrays and a call allocates nothing.
struct CallScratch {
  std::vector<Descriptor> descriptors;
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<std::byte*> slots;
  std::vector<double> factors;       // for a premultiplied sum
  std::vector<std::uint32_t> cores;  // on which the ranks ran
};

// Threads: one at a time (the driver of the group).
class DirectChannel {
 public:
  enum class Arrivals : std::uint8_t { kIncomplete, kComplete, kDifferent };

  // local_ranks[r] is the local rank, on the host, of rank r of the group.
  DirectChannel(transport::Host& host, Heap& heap, GroupMemory& memory, std::vector<int> local_ranks, int rank);
  DirectChannel(const DirectChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const GroupControl& control() const { return control_; }

  // Writes this rank's line of the next tick, with up to kLinePayload bytes. Returns its word. All ranks of the group
  // post the same word at this tick if they make the same call.
  std::uint64_t post(std::uint16_t fingerprint, const void* payload, std::size_t bytes);
  std::uint64_t post(std::uint16_t fingerprint, const Descriptor& descriptor) {
    std::memcpy(next_line().payload, &descriptor, sizeof descriptor);
    return publish(fingerprint);
  }
  // Whether all ranks have posted `word`. All ranks before `next` are known to have posted it. On return `next` is the
  // first rank that has not, or that posted another call at this tick.
  Arrivals meet(std::uint64_t word, int& next) const {
    const CallLine* const posted = lines(tick_of(word));
    for (; next < size_; ++next) {
      const std::uint64_t theirs = posted[next].word.load(std::memory_order_acquire);
      if (theirs == word) continue;
      return tick_of(theirs) == tick_of(word) ? Arrivals::kDifferent : Arrivals::kIncomplete;
    }
    return Arrivals::kComplete;
  }
  std::uint64_t tick() const { return tick_; }                             // of the last post
  static std::uint64_t tick_of(std::uint64_t word) { return word >> 16; }  // the tick at which `word` was posted
  const CallLine* lines(std::uint64_t tick) const { return control_.lines(int(tick % kSlots)); }
  std::byte* one_shot(std::uint64_t tick, int rank) const { return control_.one_shot(int(tick % kSlots), rank); }
  // Whether a peer that has not posted `word` ran last on this thread's core.
  bool awaits_this_core(std::uint64_t word, int next) const;
  void ring_peers() const;
  CallScratch& scratch() { return scratch_; }
  // Call after the barrier of the last posted tick. From time to time it moves this thread to another core, if the
  // ranks are spread unevenly over the cores.
  void spread_now_and_then() {
    if (tick_ >= next_spread_) spread();
  }

  // A sum in slices that any rank may take. Used only if ranks outnumber the cores; all ranks agree on that.
  bool shares_work() const { return control_.crowded().load(std::memory_order_relaxed) != 0; }
  std::optional<int> take_slice(std::uint64_t tick, int slices);
  void finish_slice(std::uint64_t tick, int slice, int slices);  // the last one rings the peers
  bool all_slices_are_done(std::uint64_t tick, int slices) const;
  std::vector<int> owners_of_slices(std::uint64_t tick) const;  // ranks with unfinished slices, sorted

  // The place of `bytes` bytes at p in the arenas of this host; 0 if they are in private memory.
  std::uint64_t place_of(const void* p, std::size_t bytes) const;
  std::byte* resolve(std::uint64_t place) const {
    return host_.base(int(place >> 48) - 1) + (place & ((std::uint64_t(1) << 48) - 1));
  }
  Result<std::uint64_t> slots();          // place of the staging memory; allocates it on first use
  std::uint64_t slots_if_there() const {  // 0 if not allocated yet
    return has_slots_ ? std::uint64_t(host_.rank() + 1) << 48 | slots_offset_ : 0;
  }
  // The place, in a rank's staging memory, of the copy of its input at `tick`. Alternates between two places.
  static std::uint64_t copy_place(std::uint64_t slots, std::uint64_t tick) { return slots + tick % 2 * kPieceBytes; }

 private:
  void spread();
  CallLine& next_line() const { return control_.lines(int((tick_ + 1) % kSlots))[rank_]; }
  std::uint64_t publish(std::uint16_t fingerprint);

  transport::Host& host_;
  Heap& heap_;
  GroupMemory& memory_;
  GroupControl control_;
  std::vector<transport::Bell> bells_;  // of the peers
  CallScratch scratch_;
  int rank_, size_;
  std::uint64_t tick_ = 0;
  std::uint64_t next_spread_ = 64, spread_every_ = 64;  // ticks
  std::size_t slots_offset_ = 0;
  bool has_slots_ = false;
};

// Two calls with different fingerprints are not the same collective.
std::uint16_t fingerprint_of(const Request& request);

}  // namespace tutti::comm
