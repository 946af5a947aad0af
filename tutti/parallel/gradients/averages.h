#pragma once
// From the gradients of all ranks to the averages of those elements that a rank steps.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/optim/shards.h"

namespace tutti {

// The gradients of this step's shards as the peers on this host see them. A meeting, where anything is in reach.
class PeerGradients {
 public:
  PeerGradients(const Group& group, std::span<Shard* const> shards);
  // Those of all ranks for the shard number `index`; empty: out of reach.
  std::span<std::byte* const> of(std::size_t index) const;
  bool any() const;

 private:
  std::size_t ranks_;
  std::vector<std::byte*> memory_;
};

// What has been seen while averaging.
struct AverageFacts {
  double squares = 0;       // of this rank's averages, of shards that count
  double tail_squares = 0;  // of those that every rank has alike
  // The lowest that was not finite: a shard's number and a rank, if it is known; -1: none.
  std::int64_t shard = -1, rank = -1;
};

// Whether averages are looked at while they are stepped: those of a tile that has a NaN or an infinity leave weights
// and state as they are, and are blamed.
struct StepLook {
  std::int64_t number = 0;        // the shard's, in AverageFacts
  AverageFacts* facts = nullptr;  // null: not looked at
};

// Where averages go.
enum class AveragesIn {
  kGradient,  // over this rank's gradient (and the few of the tail beside it)
  kOwn,       // memory of their own: the gradient may be let go of after a meeting
};

// The average, in rank order, of one shard's gradients: its mine_average and tail_average. `number` is the shard's in
// AverageFacts.
void average_in_place(Shard& shard, std::span<std::byte* const> gradients, AveragesIn where, std::int64_t number,
                      AverageFacts& facts);
// Blames this rank where the shard's gradient is not finite: before it is mixed with the others'.
void look_at_own(const Group& group, const Shard& shard, std::int64_t number, AverageFacts& facts);

// What of a gradient that is out of reach is averaged.
enum class AverageOf {
  kPart,   // this rank's part of a large one, and the tail; small ones whole
  kWhole,  // all of it, over the gradient, in the very call that DataParallel makes for it: the same order of additions
  kNothing,  // the range that it is packed in has been averaged
};
// The same by collectives, in two parts: every rank begins alike. The gradient has to stay until the end.
class AverageByCollectives {
 public:
  AverageByCollectives(const Group& group, Shard& shard, AveragesIn where, AverageOf what);
  void end(AverageFacts& facts);

 private:
  Shard* shard_;
  AverageOf what_;
  std::vector<Work> works_;
};
Work average_async(const Group& group, DType dtype, void* values, std::int64_t count);

// Averages and steps this rank's elements in one pass, and gives the new weights to the peers. Weights and gradients
// are in reach.
void average_and_step(const Group& group, Shard& shard, std::span<std::byte* const> gradients, const Update& update,
                      const StepLook& look);
// Steps from the averages; gives the new weights to the peers where they are in reach.
void step_averaged(const Group& group, Shard& shard, const Update& update, const StepLook& look);

}  // namespace tutti
