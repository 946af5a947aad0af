#pragma once
// The collectives of a group over links. Chooses an algorithm, makes the plan, and caches both for the next call of the
// same shape. A training step repeats the same calls, so from its second run on it plans and allocates nothing.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/links/executor.h"
#include "tutti/comm/links/select.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/plans/hosts.h"

namespace tutti::comm {

// Threads: one at a time (the driver of the group).
class PlannedCalls {
 public:
  static constexpr std::size_t kKept = 64;              // cached plans; the least recently used one is evicted
  static constexpr std::size_t kKeptSteps = 256 << 10;  // of all cached plans: about 25 MB

  // `links`, `hosts` and `selector` must outlive it.
  PlannedCalls(std::span<transport::Link* const> links, int rank, const Hosts& hosts, const Selector& selector);

  // Bytes of staging that a call may need. Longer calls run in pieces. So a group over links holds at most three times
  // this size, plus kChunk.
  static constexpr std::size_t kStaging = 16 << 20;

  // The operation is valid until the next call: a group runs its collectives one after another.
  Result<Operation*> start(const Request& request, std::uint64_t sequence);
  std::size_t kept() const { return kept_.size(); }

 private:
  // The properties of a call that its plan depends on.
  struct Key {
    Kind kind = Kind::kBarrier;
    Algorithm algorithm = Algorithm::kDirect;
    DType wire = DType::kU8;
    bool in_place = false;
    std::int32_t root = 0;
    std::size_t count = 0;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    std::vector<std::size_t> splits[2];
    std::unique_ptr<PlanOperation> operation;
    std::size_t steps = 0;
    std::uint64_t used = 0;  // value of calls_ at the last use
  };
  // Runs a call that is too long for the staging memory, piece after piece.
  class InPieces final : public Operation {
   public:
    explicit InPieces(PlannedCalls& calls) : calls_(calls) {}
    Status begin(const Request& request, std::uint64_t sequence, std::size_t longest, std::size_t count_in_piece);
    Result<Progress> step() override;
    void blockers(Blockers& blockers) const override { now_->blockers(blockers); }

   private:
    PlannedCalls& calls_;
    Request request_;
    std::uint64_t sequence_ = 0;
    std::size_t longest_ = 0;  // elements of the longest part
    CallRange piece_;
    PlanOperation* now_ = nullptr;
  };

  Result<PlanOperation*> begin(const Request& request, std::uint64_t sequence, CallRange piece);
  Entry* find(const Key& key, const Shape& shape);
  void make_room(std::size_t steps);

  std::span<transport::Link* const> links_;
  int rank_;
  const Hosts& hosts_;
  const Selector& selector_;
  PlanMemory memory_;
  std::vector<Entry> kept_;
  std::size_t steps_ = 0;  // of all cached plans
  std::size_t last_ = 0;   // index of the entry that was used last
  std::uint64_t calls_ = 0;
  InPieces in_pieces_{*this};
  std::vector<std::size_t> splits_;  // of a piece
};

}  // namespace tutti::comm
