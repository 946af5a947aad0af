#pragma once
// PowerSGD (Vogels et al., 2019, arXiv 1905.13727). A gradient M of [n, m] is sent as two thin matrices, [n, r] and [m,
// r]. Their product is the result of one step of power iteration on M's average. The error is added to the next
// gradient. For slow networks: at r = 1 a square weight of 4096 sends 1/2048 of its bytes.
//
// Results, options and defaults are those of torch.distributed's powerSGD_hook, with two differences. A gradient of
// zeros gives zeros (there NaN, unless rank is 3 or more), and gradients that are sent uncompressed have no error
// feedback.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/state.h"
#include "tutti/parallel/data_parallel/hooks/comm_hook.h"
#include "tutti/parallel/optim/state_part.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

template <class M>
class DataParallel;
class Reducer;

struct PowerSgdOptions {
  std::int64_t rank = 1;           // of the approximation: 1 to 4 is usual
  std::int64_t start_step = 1000;  // steps before it are plain averages; at least 2 with either of the next two
  bool error_feedback = true;      // costs a copy of the gradients
  bool warm_start = true;          // each step starts from the previous step's Q
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

  // For a checkpoint: what later steps depend on, of the parameters of the DataParallel whose group this is; between
  // two steps. Saved are a Q for each matrix, "power_sgd_q", the same on every rank, and the error of each rank,
  // "power_sgd_error" of [ranks, elements of the matrix]. There are none before the first step that compresses, whose
  // Qs are drawn by buckets: if gradients then come in another order than that of the parameters, a run that resumes
  // there draws other Qs. On another number of ranks each takes the mean of the errors: averages then have as much of
  // them as they lack. A load rejects what does not fit these parameters, or this rank of approximation (kMismatch).
  // `last_was_skipped`: the last step was (Reducer::skips_step()).
  void state(StateDict& dict, const Group& group, std::vector<NamedTensor> parameters, bool last_was_skipped);

 private:
  struct Progress {
    std::int64_t steps = 0;               // so far
    std::int64_t draws = 0;               // of the generator of first Qs
    double error_scale = 1, q_scale = 1;  // of the gradients that left the errors, and the Qs
  };
  std::vector<StatePart> own_state(const Group& group, bool last_was_skipped, Progress& progress);
  Status load(const CheckpointReader& saved, const Progress& progress, const Group& group,
              std::span<const NamedTensor> parameters, const std::string& prefix);

  struct State;
  std::unique_ptr<State> state_;
};

// What a PowerSgd has kept, for a Checkpointer; what is saved and rejected: PowerSgd::state().
//
//   tutti::PowerSgdState power_sgd(*hook, ddp);
//   checkpoints.add("power_sgd", power_sgd);
class PowerSgdState {
 public:
  // Both have to outlive this.
  PowerSgdState(PowerSgd& hook, Reducer& reducer) : hook_(hook), reducer_(reducer) {}
  template <class M>
  PowerSgdState(PowerSgd& hook, DataParallel<M>& ddp) : PowerSgdState(hook, ddp.reducer()) {}

  // Between two steps.
  void state(StateDict& dict);

 private:
  PowerSgd& hook_;
  Reducer& reducer_;
};

}  // namespace tutti
