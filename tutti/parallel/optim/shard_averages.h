#pragma once
// The averages of those elements of a gradient that a rank steps: from the memory of the ranks of one host
// (gradients/average_tiles.h), or by collectives. On a GPU always by collectives.
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/gradients/findings.h"
#include "tutti/parallel/optim/shards.h"
#include "tutti/tensor/collectives.h"

namespace tutti {

// The gradients of this step's shards as the peers on this host see them. A barrier, if any can be read.
class PeerGradients {
 public:
  PeerGradients(const Group& group, std::span<Shard* const> shards);
  // By rank, of the shard at `index`; empty: not all of them can be read here.
  std::span<std::byte* const> of(std::size_t index) const;
  bool any() const;

 private:
  std::size_t ranks_;
  std::vector<std::byte*> memory_;
};

// Where averages go.
enum class AveragesIn {
  kGradient,  // over this rank's gradient (and the few of the tail beside it)
  kOwn,       // memory of their own: the gradient may be freed after a barrier
};

// Averages one shard's gradients into its mine_average and tail_average. `number` is the shard's in the findings.
void keep_averages(Shard& shard, std::span<std::byte* const> gradients, AveragesIn where, std::size_t number,
                   GradientFindings& findings);

// Which elements of a gradient that peers cannot read are averaged.
enum class AverageOf {
  kPart,                 // this rank's part of a large one, and the tail; small ones whole
  kWholeAsDataParallel,  // all, over the gradient, by the call that DataParallel makes: in the same order of additions
  kNothing,              // the range that it is packed in has been averaged
};
// keep_averages() by collectives, in two parts. Every rank calls both alike. The gradient must exist until end(). On a
// GPU the findings have the averages themselves until they are settled.
class AverageByCollectives {
 public:
  AverageByCollectives(const Group& group, Shard& shard, AveragesIn where, AverageOf what, std::size_t number);
  void end(GradientFindings& findings);

 private:
  Shard* shard_;
  std::size_t number_;
  AverageOf what_;
  std::vector<TensorWork> works_;
};

// Whether averages are checked while they are stepped. Weights and state of a tile that has a NaN or an infinity stay
// as they are, and the tile is noted.
struct StepCheck {
  std::size_t number = 0;                // the shard's, in the findings
  GradientFindings* findings = nullptr;  // null: not checked
};

// Averages and steps this rank's elements in one pass, and writes the new weights to the peers. Weights and gradients
// of all ranks can be read here.
void average_and_step(const Group& group, Shard& shard, std::span<std::byte* const> gradients, const Update& update,
                      const StepCheck& check);
// Steps from the averages; writes the new weights to the peers where their memory can be reached. On a GPU nothing is
// checked, since the host would wait for each shard: settle the findings of all averages before.
void step_averaged(const Group& group, Shard& shard, const Update& update, const StepCheck& check);

}  // namespace tutti
