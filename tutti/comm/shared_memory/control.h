#pragma once
// The shared memory of the ranks of one group on one host: mainly the lines through which they synchronize. It is in
// the arena of the group's lowest rank on that host and starts as zeros.
//
// A *tick* is one barrier: every rank writes its line of the tick and waits for the lines of all other ranks. All ranks
// count ticks alike. There are kSlots sets of lines, used in turn. A rank overwrites its line of tick t at tick t +
// kSlots. By then every peer has read it, because a peer that has posted t + 1 is done with t.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tutti/comm/request.h"
#include "tutti/transport/shm/shm_link.h"

namespace tutti::comm {

inline constexpr int kSlots = 4;
inline constexpr std::size_t kLinePayload = 112;
// Up to this size a rank's contribution, if it does not fit in the line, is copied to a slot of the control block.
inline constexpr std::size_t kOneShotBytes = 2048;

struct alignas(128) CallLine {
  std::atomic<std::uint64_t> word{0};  // tick << 16 | fingerprint of the call
  std::atomic<std::uint32_t> core{0};  // on which the rank ran when it posted
  // Small data or a Descriptor; valid once `word` is. 48 bytes of it share the cache line of `word`.
  alignas(16) std::byte payload[kLinePayload];
};
static_assert(sizeof(CallLine) == 128);

// A rank's call, written when the rank finds that a peer's call differs. Both ranks find it at the same tick.
struct alignas(128) CallRecord {
  std::atomic<std::uint64_t> word{0};  // of its tick; written last
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> shape{0};  // kind, dtype, op, root: see pack_shape()
};

// The payload of a call whose data does not fit: the places of this rank's buffers in arenas (0: private memory).
struct Descriptor {
  std::uint64_t in = 0, out = 0;  // place: (owner's local rank + 1) << 48 | offset
  std::uint64_t slots = 0;        // place of this rank's staging memory
  std::uint64_t count = 0;
  std::uint64_t shape = 0;
  std::uint64_t largest_split = 0;  // with splits: elements of the largest part that this rank knows of
};
// If ranks outnumber the cores, a sum is not divided in advance: each running rank takes the next slice. The operation
// ends when all slices are done, even if some ranks have not run since they entered. Fields contain the tick that they
// belong to.
struct alignas(128) SharedWork {
  static constexpr int kMostSlices = 64;
  std::atomic<std::uint64_t> taken{0};              // tick << 16 | number of slices taken
  std::atomic<std::uint64_t> done{0};               // tick << 16 | number of slices done
  std::atomic<std::uint16_t> owner[kMostSlices]{};  // 1 + the rank that works on the slice; 0: none
};

// For a premultiplied sum: the offset of a rank's factor in the payload. Inline data must end before it.
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
  // Nonzero if the group has failed: 1 + the rank, in the group, that failed it.
  std::atomic<std::uint32_t>& poison() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison);
  }
  // The number of members that have left the group, and the number that have freed their memory after all had left. See
  // group_memory.h.
  std::atomic<std::uint32_t>& left() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison + 64);
  }
  std::atomic<std::uint32_t>& returned() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison + 68);
  }
  // Nonzero if ranks outnumber the cores. Written before the other ranks know of the block.
  std::atomic<std::uint32_t>& crowded() const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + layout_.poison + 72);
  }
  SharedWork& work(int slot) const { return reinterpret_cast<SharedWork*>(base_ + layout_.works)[slot]; }
  // With splits: the elements that `from` has for each rank (gather_v: for the root). If all ranks pass the same
  // splits: the splits that `from` has passed.
  std::uint64_t* splits(int from) const {
    return reinterpret_cast<std::uint64_t*>(base_ + layout_.splits) + from * ranks_;
  }
  // The link between two ranks (a < b) for one of two purposes: 0 for collectives, 1 for send and recv.
  transport::ShmLinkControl* link(int purpose, int a, int b) const {
    const int pair = b * (b - 1) / 2 + a;
    return reinterpret_cast<transport::ShmLinkControl*>(base_ + layout_.links) + purpose * (ranks_ * (ranks_ - 1) / 2) +
           pair;
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
    l.one_shots = (l.links + n * (n - 1) * sizeof(transport::ShmLinkControl) + 4095) / 4096 * 4096;
    l.total = l.one_shots + kSlots * n * kOneShotBytes;
    return l;
  }

  std::byte* base_ = nullptr;
  int ranks_ = 0;
  Layout layout_{};
};

}  // namespace tutti::comm
