#pragma once
// PowerSGD (Vogels et al., 2019, arXiv 1905.13727): a gradient M of [n, m] travels as two thin matrices, [n, r] and
// [m, r], whose product is what one step of power iteration makes of M's average; what is lost is added to the next
// gradient. For slow networks: at r = 1 a square weight of 4096 sends 1/2048 of its bytes.
//
// The numbers, options and defaults are those of torch.distributed's powerSGD_hook, with two differences: a gradient of
// zeros gives zeros (there NaN, unless rank is 3 or more), and gradients that travel uncompressed keep no error.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/parallel/data_parallel/hooks/comm_hook.h"
#include "tutti/parallel/optim/state_part.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

struct PowerSgdOptions {
  std::int64_t rank = 1;           // of the approximation: 1 to 4 is usual
  std::int64_t start_step = 1000;  // steps before it are plain averages; at least 2 with either of the next two
  bool error_feedback = true;      // costs a copy of the gradients
  bool warm_start = true;          // each step goes on from the last one's Q
  // A gradient is compressed if that makes it smaller by more than this factor.
  double min_compression_rate = 2;
  double orthogonalization_epsilon = 0;  // added to the norm of each column
  std::uint32_t seed = 0;                // of the first Q: the same on every rank
};

class PowerSgd final : public CommHook {
 public:
  explicit PowerSgd(PowerSgdOptions options = {});
  ~PowerSgd() override;
  std::string name() const override;
  Finish start(const Group& group, const GradientBucket& bucket) override;

  struct Elements {
    std::int64_t before = 0, after = 0;  // of all gradients of all steps that were compressed
  };
  Elements elements() const;

  // For checkpoints: what later steps hang on.
  struct Progress {
    std::int64_t steps = 0;               // so far
    std::int64_t draws = 0;               // of the generator of first Qs
    double error_scale = 1, q_scale = 1;  // of the gradients that left the errors, and the Qs
  };
  struct Saved {
    // By parameter, in this object's own memory, until the next step: its Q, "power_sgd_q", the same on every rank,
    // and its error, "power_sgd_error", of which each rank of the group has its own: [ranks, elements of the
    // parameter]. None before the first step that compresses, whose Qs are drawn by buckets: where gradients come in
    // another order than that of the parameters, a run that goes on just there draws others.
    std::vector<StatePart> parts;
    Progress progress;
  };
  // Between two steps. `was_left_out`: the last one was (Reducer::skips_step()).
  Saved own_state(const Group& group, bool was_left_out);
  // What load() may read on as many ranks as saved, for JobCheckpoints::resume().
  std::vector<SavedBox> wanted_boxes(const Group& group, std::span<const NamedTensor> parameters) const;
  // The parts that the checkpoint has, for CheckpointReader::expect().
  static std::vector<ExpectedTensor> expected_tensors(const CheckpointReader& saved);
  // Before the first step. On another number of ranks each takes the mean of the errors, which gives the averages as
  // much as they lack. kMismatch names a part that does not fit these parameters, or this rank of approximation.
  Status load(const CheckpointReader& saved, const Progress& progress, const Group& group,
              std::span<const NamedTensor> parameters);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
