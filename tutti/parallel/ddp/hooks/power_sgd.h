#pragma once
// PowerSGD (Vogels et al., 2019, arXiv 1905.13727): a gradient M of [n, m] travels as two thin matrices, [n, r] and
// [m, r], whose product is what one step of power iteration makes of M's average; what is lost is added to the next
// gradient. For slow networks: at r = 1 a square weight of 4096 sends 1/2048 of its bytes.
//
// The numbers, options and defaults are those of torch.distributed's powerSGD_hook, with two differences: a column of
// zeros stays zeros (there it becomes NaN), and gradients that travel as they are keep no error.
#include <cstdint>
#include <memory>

#include "tutti/parallel/ddp/hooks/comm_hook.h"

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

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
