#pragma once
// This rank's side of the shared-memory path of one group: its lines, its bells, and where buffers lie.
#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/comm/heap.h"
#include "tutti/comm/shared_memory/control.h"
#include "tutti/comm/shared_memory/group_memory.h"
#include "tutti/transport/shm/host.h"

namespace tutti {

// Bytes that a rank contributes up to which all of its data rides in its line.
inline constexpr std::size_t kInlineBytes = kLinePayload;
// Staging memory of a rank in a group: pieces through which private buffers flow.
inline constexpr std::size_t kPieceBytes = std::size_t(128) << 10;
inline constexpr int kPieces = 3;
inline constexpr std::size_t kSlotsBytes = kPieces * kPieceBytes;

// How often a rank that spins checks whether it keeps a peer from the core.
inline constexpr int kTriesPerCoreCheck = 16;

// What an operation writes down of all ranks, by rank. A group carries out its collectives one after another, so they
// share it, and a call allocates nothing.
struct CallScratch {
  std::vector<Descriptor> descriptors;
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<std::byte*> slots;
  std::vector<double> factors;       // of a premultiplied sum
  std::vector<std::uint32_t> cores;  // where they ran
};

// One thread at a time (the driver of the group).
class DirectChannel {
 public:
  enum class Meeting : std::uint8_t { kIncomplete, kComplete, kDifferent };

  // local_ranks: by rank of the group, the rank on the host.
  DirectChannel(Host& host, Heap& heap, GroupMemory& memory, std::vector<int> local_ranks, int rank);
  DirectChannel(const DirectChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const GroupControl& control() const { return control_; }

  // Writes this rank's line of the next tick, with up to kLinePayload bytes. Returns its word, which all ranks of the
  // group post at this tick if they make the same call.
  std::uint64_t post(std::uint16_t fingerprint, const void* payload, std::size_t bytes);
  std::uint64_t post(std::uint16_t fingerprint, const Descriptor& descriptor) {
    std::memcpy(next_line().payload, &descriptor, sizeof descriptor);
    return publish(fingerprint);
  }
  // Whether all ranks have posted `word`. `next`: ranks before it have; left at the first that has not, or that posted
  // another call at this tick.
  Meeting meet(std::uint64_t word, int& next) const {
    const CallLine* const posted = lines(tick_of(word));
    for (; next < size_; ++next) {
      const std::uint64_t theirs = posted[next].word.load(std::memory_order_acquire);
      if (theirs == word) continue;
      return tick_of(theirs) == tick_of(word) ? Meeting::kDifferent : Meeting::kIncomplete;
    }
    return Meeting::kComplete;
  }
  std::uint64_t tick() const { return tick_; }                             // posted last
  static std::uint64_t tick_of(std::uint64_t word) { return word >> 16; }  // that `word` was posted at
  const CallLine* lines(std::uint64_t tick) const { return control_.lines(int(tick % kSlots)); }
  std::byte* one_shot(std::uint64_t tick, int rank) const { return control_.one_shot(int(tick % kSlots), rank); }
  // A peer that has not posted `word` ran last on this thread's core.
  bool awaits_this_core(std::uint64_t word, int next) const;
  void ring_peers() const;
  CallScratch& scratch() { return scratch_; }
  // After the meeting of the tick posted last: now and then moves this thread if the ranks are spread unevenly over the
  // cores.
  void spread_now_and_then() {
    if (tick_ >= next_spread_) spread();
  }

  // The slices of a sum that all ranks share (only where crowded; they agree on it).
  bool shares_work() const { return control_.crowded().load(std::memory_order_relaxed) != 0; }
  std::optional<int> take_slice(std::uint64_t tick, int slices);
  void finish_slice(std::uint64_t tick, int slice, int slices);  // rings the peers after the last one
  bool all_slices_are_done(std::uint64_t tick, int slices) const;
  std::vector<int> owners_of_slices(std::uint64_t tick) const;  // that are being worked on, by rank

  // Where `bytes` at p lie in the arenas of this host; 0: in private memory.
  std::uint64_t place_of(const void* p, std::size_t bytes) const;
  std::byte* resolve(std::uint64_t place) const {
    return host_.base(int(place >> 48) - 1) + (place & ((std::uint64_t(1) << 48) - 1));
  }
  Result<std::uint64_t> slots();          // place of the staging memory, allocated at first use
  std::uint64_t slots_if_there() const {  // 0: not yet
    return has_slots_ ? std::uint64_t(host_.rank() + 1) << 48 | slots_offset_ : 0;
  }
  // Where in the staging memory of a rank its copy of what it gives at `tick` lies: two places in turn.
  static std::uint64_t copy_place(std::uint64_t slots, std::uint64_t tick) { return slots + tick % 2 * kPieceBytes; }

 private:
  void spread();
  CallLine& next_line() const { return control_.lines(int((tick_ + 1) % kSlots))[rank_]; }
  std::uint64_t publish(std::uint16_t fingerprint);

  Host& host_;
  Heap& heap_;
  GroupMemory& memory_;
  GroupControl control_;
  std::vector<Bell> bells_;  // of the peers
  CallScratch scratch_;
  int rank_, size_;
  std::uint64_t tick_ = 0;
  std::uint64_t next_spread_ = 64, spread_every_ = 64;  // ticks
  std::size_t slots_offset_ = 0;
  bool has_slots_ = false;
};

// Two calls with different fingerprints cannot be the same collective.
std::uint16_t fingerprint_of(const Request& request);

}  // namespace tutti
