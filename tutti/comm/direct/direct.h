#pragma once
// Collectives between ranks of one host, straight through shared memory: see direct.cc for how.
#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/direct/control.h"
#include "tutti/comm/group_memory.h"
#include "tutti/comm/heap.h"
#include "tutti/comm/operation.h"
#include "tutti/transport/shm/host.h"

namespace tutti {

// This rank's side of the shared-memory path of one group. One thread at a time (the driver of the group).
class DirectChannel {
 public:
  // local_ranks: by rank of the group, the rank on the host. crowded: ranks outnumber the cores, so each tells where it
  // runs.
  DirectChannel(Host& host, Heap& heap, GroupMemory& memory, std::vector<int> local_ranks, int rank, bool crowded);
  DirectChannel(const DirectChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const GroupControl& control() const { return control_; }
  Host& host() { return host_; }
  int local_rank(int group_rank) const { return local_ranks_[group_rank]; }

 private:
  friend class DirectOperation;
  friend class StagedTransfer;

  std::uint64_t place_of(const void* p, std::size_t bytes) const;
  std::byte* resolve(std::uint64_t place) const {
    return host_.base(int(place >> 48) - 1) + (place & ((std::uint64_t(1) << 48) - 1));
  }
  Result<std::uint64_t> slots();  // place of the staging memory, allocated at first use
  void ring_peers() const;

  Host& host_;
  Heap& heap_;
  GroupMemory& memory_;
  GroupControl control_;
  std::vector<int> local_ranks_;
  std::vector<Bell> bells_;  // of the peers
  int rank_, size_;
  bool crowded_;
  std::uint64_t tick_ = 0;
  std::size_t slots_offset_ = 0;
  bool has_slots_ = false;
};

// Bytes that a rank contributes up to which all of its data rides in its line.
inline constexpr std::size_t kInlineBytes = kLinePayload;
// Staging memory of a rank in a group: pieces through which private buffers flow.
inline constexpr std::size_t kPieceBytes = std::size_t(128) << 10;
inline constexpr int kPieces = 3;
inline constexpr std::size_t kSlotsBytes = kPieces * kPieceBytes;

class DirectOperation final : public Operation {
 public:
  DirectOperation(DirectChannel& channel, const Request& request, std::uint64_t sequence);
  ~DirectOperation() override;
  Result<Progress> step() override;
  bool awaits_this_core() const override;
  void blockers(Blockers& blockers) const override;

 private:
  enum class Stage : std::uint8_t { kEnter, kMeet, kLeave, kStaged, kCompare };
  enum class Meeting : std::uint8_t { kIncomplete, kComplete, kDifferent };

  void post(const void* payload, std::size_t bytes);
  Meeting meet();
  Result<Progress> compare_with(int peer);
  Result<Progress> compare();
  Result<Progress> enter();
  Result<Progress> after_meeting();
  Result<Progress> after_piece();
  void finish_small(const void* const* parts);
  bool can_go_direct(const Descriptor* theirs) const;
  void act_direct(const Descriptor* theirs);
  Status check_splits() const;
  std::size_t contributed() const;

  DirectChannel& channel_;
  const Request request_;
  const std::uint64_t sequence_;
  std::uint64_t word_ = 0;  // awaited from the peers
  std::size_t element_;
  std::uint16_t fingerprint_;
  Stage stage_ = Stage::kEnter;
  int next_ = 0;  // first peer not yet seen at this tick; in kCompare, the one with another call
  Clock::time_point compared_since_{};
  enum class Way : std::uint8_t { kInline, kOneShot, kLarge } way_;
  std::unique_ptr<class StagedTransfer> staged_;
};

}  // namespace tutti
