#pragma once
// What the ranks of one group on one host keep in shared memory: the lines through which they meet. It lies in the
// arena of the group's lowest rank on that host and begins as zeros.
//
// A *tick* is one meeting: every rank writes its line of the tick and waits for the lines of the others. Ticks are
// counted alike on all ranks. Lines come in kSlots sets used in turn: a rank overwrites its line of tick t at tick t +
// kSlots, long after every peer has read it, since a peer that posted t + 1 is done with t.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tutti/comm/request.h"
#include "tutti/transport/shm/shm_link.h"

namespace tutti {

inline constexpr int kSlots = 4;
inline constexpr std::size_t kLinePayload = 112;
// Bytes that a rank contributes up to which they are copied into a slot of the control block instead.
inline constexpr std::size_t kOneShotBytes = 2048;

struct alignas(128) CallLine {
  std::atomic<std::uint64_t> word{0};  // tick << 16 | fingerprint of the call
  std::atomic<std::uint32_t> core{0};  // where the rank ran when it posted
  // Small data, or a Descriptor; valid once word is. 48 bytes of it share word's cache line.
  alignas(16) std::byte payload[kLinePayload];
};
static_assert(sizeof(CallLine) == 128);

// The call that a rank is making, written when it finds that a peer's differs: both find it at the same tick.
struct alignas(128) CallRecord {
  std::atomic<std::uint64_t> word{0};  // of the tick it belongs to; written last
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> shape{0};  // kind, dtype, op, root: see pack_shape()
};

// Payload of a call whose data does not fit: where this rank's buffers are, as places in arenas (0: private memory).
struct Descriptor {
  std::uint64_t in = 0, out = 0;  // place: (owner's local rank + 1) << 48 | offset
  std::uint64_t slots = 0;        // this rank's staging memory, likewise
  std::uint64_t count = 0;
  std::uint64_t shape = 0;
  std::uint64_t largest_split = 0;  // with splits: elements of the largest part that this rank knows of
};
// Where ranks outnumber the cores, a sum is nobody's in particular: whoever runs takes the next slice of it, and all
// are through when every slice is done, though some may not have run since they came. Fields say which tick they are
// of.
struct alignas(128) SharedWork {
  static constexpr int kMostSlices = 64;
  std::atomic<std::uint64_t> taken{0};              // tick << 16 | slices that somebody has taken upon himself
  std::atomic<std::uint64_t> done{0};               // tick << 16 | slices
  std::atomic<std::uint16_t> owner[kMostSlices]{};  // 1 + the rank that works on it; 0: nobody
};

// A premultiplied sum: where in the payload a rank's factor lies; what rides in the line then ends before it.
inline constexpr std::size_t kFactorOffset = kLinePayload - sizeof(double);
static_assert(sizeof(Descriptor) <= kFactorOffset);

inline std::uint64_t pack_shape(const Request& r) {
  return std::uint64_t(r.kind) << 48 | std::uint64_t(r.dtype) << 40 | std::uint64_t(r.op) << 32 | std::uint32_t(r.root);
}
inline Request unpack_shape(std::uint64_t shape, std::uint64_t count) {
  Request r;
  r.kind = Kind(shape >> 48 & 0xff);
  r.dtype = DType(shape >> 40 & 0xff);
  r.op = ReduceOp(shape >> 32 & 0xff);
  r.root = std::int32_t(std::uint32_t(shape));
  r.count = count;
  return r;
}

class GroupControl {
 public:
  static std::size_t bytes(int ranks) { return layout(ranks).total; }
  GroupControl() = default;
  GroupControl(std::byte* base, int ranks) : base_(base), ranks_(ranks), layout_(layout(ranks)) {}

  CallLine* lines(int slot) const { return reinterpret_cast<CallLine*>(base_) + slot * ranks_; }
  CallRecord& record(int rank) const { return reinterpret_cast<CallRecord*>(base_ + layout_.records)[rank]; }
  std::byte* one_shot(int slot, int rank) const {
    return base_ + layout_.one_shots + std::size_t(slot * ranks_ + rank) * kOneShotBytes;
  }
  // Not 0: the group ended; 1 + the rank, in the group, that ended it.
  std::atomic<std::uint32_t>& poison() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison);
  }
  // How many members have left the group, and how many have given back their memory since all had: see group_memory.h.
  std::atomic<std::uint32_t>& left() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison + 64);
  }
  std::atomic<std::uint32_t>& returned() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison + 68);
  }
  // Not 0: ranks outnumber the cores. Written before the others know of the block.
  std::atomic<std::uint32_t>& crowded() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison + 72);
  }
  SharedWork& work(int slot) const { return reinterpret_cast<SharedWork*>(base_ + layout_.works)[slot]; }
  // With splits: elements that `from` has for each rank (gather_v: for the root); where all ranks give the same splits:
  // those that `from` has given.
  std::uint64_t* splits(int from) const {
    return reinterpret_cast<std::uint64_t*>(base_ + layout_.splits) + from * ranks_;
  }
  // The link between two ranks (a < b) for one of two purposes (0: collectives, 1: send and recv).
  ShmLinkControl* link(int purpose, int a, int b) const {
    const int pair = b * (b - 1) / 2 + a;
    return reinterpret_cast<ShmLinkControl*>(base_ + layout_.links) + purpose * (ranks_ * (ranks_ - 1) / 2) + pair;
  }

 private:
  struct Layout {
    std::size_t records, works, poison, splits, links, one_shots, total;
  };
  static Layout layout(int ranks) {
    const std::size_t n = std::size_t(ranks);
    Layout l;
    l.records = kSlots * n * sizeof(CallLine);
    l.works = l.records + n * sizeof(CallRecord);
    l.poison = l.works + kSlots * sizeof(SharedWork);
    l.splits = l.poison + 128;
    l.links = (l.splits + n * n * sizeof(std::uint64_t) + 127) / 128 * 128;
    l.one_shots = (l.links + n * (n - 1) * sizeof(ShmLinkControl) + 4095) / 4096 * 4096;
    l.total = l.one_shots + kSlots * n * kOneShotBytes;
    return l;
  }

  std::byte* base_ = nullptr;
  int ranks_ = 0;
  Layout layout_{};
};

}  // namespace tutti
