#pragma once
// Local SGD (Lin et al., 2020, arXiv 1808.07217): ranks step by themselves, or in small groups, and every few steps
// average their weights, which takes a fraction of the messages. Post-local: at first gradients are averaged as usual.
//
//   auto hook = tutti::local_sgd({.start_step = 100});
//   tutti::DataParallel ddp(model, world, {.hook = hook});
//   tutti::PeriodicAverager averager(model->parameters(), world, {.period = 4, .warmup_steps = 100});
//   ...
//   optimizer.step();
//   averager.average();                       // after every step: it counts them
#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/parallel/data_parallel/hooks/comm_hook.h"

namespace tutti {

struct LocalSgdOptions {
  std::int64_t start_step = 0;  // steps before it average gradients over all ranks
  // After them, over this group (all ranks of a host, say); none: each rank goes by itself.
  Group subgroup{};
};
std::shared_ptr<CommHook> local_sgd(LocalSgdOptions options = {});

struct PeriodicAveragerOptions {
  std::int64_t period = 1;        // steps from one average to the next
  std::int64_t warmup_steps = 0;  // steps that average nothing: the start_step of the hook
};

// Every rank calls average() as often. One thread at a time.
class PeriodicAverager {
 public:
  PeriodicAverager(std::vector<at::Tensor> parameters, Group group, PeriodicAveragerOptions options);
  // Whether the parameters were averaged now. Throws Exception with the root cause.
  bool average();
  std::int64_t steps() const { return steps_; }

 private:
  std::vector<at::Tensor> parameters_;
  Group group_;
  PeriodicAveragerOptions options_;
  std::int64_t steps_ = 0;
};

}  // namespace tutti
