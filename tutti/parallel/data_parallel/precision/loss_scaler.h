#pragma once
// f16 has no numbers below 6e-8, and gradients are often smaller. So the loss is multiplied by a scale, and with it all
// gradients. A scale that is too large shows as an infinity: every rank skips that step, and the scale falls. As
// torch.cuda.amp.GradScaler, with its defaults.
//
//   tutti::DataParallel ddp(model, world, {.hook = tutti::f16_compression(), .finite_check = FiniteCheck::kReport});
//   tutti::LossScaler scaler(ddp);
//   scaler.scale(loss).backward();
//   ddp.finish();                      // averages, and divides by the scale; not with a sharded optimizer
//   scaler.step(optimizer);            // unless a gradient of some rank was not finite
//   scaler.update();
#include "tutti/checkpoint/state.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/gradients/loss_scale.h"

namespace tutti {

class ShardedModule;
class ShardedOptimizer;

struct LossScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;             // above 1
  double backoff_factor = 0.5;          // between 0 and 1
  std::int64_t growth_interval = 2000;  // steps without an infinity after which the scale grows
};

// One for each DataParallel or FullySharded that it works with, whose finite_check must be kReport. One thread at a
// time. The scale is the same on every rank, without a message: all ranks see the same verdict, also those that have
// run out of data (join_uneven()).
class LossScaler {
 public:
  using State = LossScale::State;

  template <class M>
  explicit LossScaler(DataParallel<M>& ddp, LossScalerOptions options = {}) : LossScaler(ddp.reducer(), options) {}
  explicit LossScaler(Reducer& reducer, LossScalerOptions options = {});
  explicit LossScaler(ShardedModule& sharded, LossScalerOptions options = {});  // a FullySharded
  ~LossScaler();
  LossScaler(const LossScaler&) = delete;
  LossScaler& operator=(const LossScaler&) = delete;

  at::Tensor scale(const at::Tensor& loss) const;
  // After finish(). Whether optimizer.step() was called.
  template <class Optimizer>
  bool step(Optimizer& optimizer) {
    if (skips_step()) return false;
    optimizer.step();
    return true;
  }
  bool step(ShardedOptimizer& optimizer);  // finishes DataParallel's step as well
  // Once a step, after the optimizer's: the scale of the next one. Throws Exception where f32 has none small enough.
  void update();

  double scale() const { return scale_.scale(); }
  State state() const { return scale_.state(); }  // to save with the model
  void state(StateDict& state);                   // the same, for a Checkpointer
  void load(const State& state);

 private:
  bool skips_step() const;
  void set_gradient_scale(double scale);
  [[noreturn]] void reject_useless_scale(double scale) const;

  Reducer* const reducer_ = nullptr;  // or
  ShardedModule* const sharded_ = nullptr;
  LossScale scale_;
  State saved_;  // what state() saves, or loads
};

}  // namespace tutti
