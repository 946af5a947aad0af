#pragma once
// The end of a training step, from gradients to new weights, however they are spread and scaled.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tutti/models/image/models.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"

namespace tutti {

struct ReplicaStepOptions {
  UpdateRule rule;
  int sharded_stage = 0;      // of ShardedOptimizer; 0: every rank steps all weights
  double clip_grad_norm = 0;  // 0: not
  bool scales_loss = false;   // for gradients in f16
};

class ReplicaStep {
 public:
  ReplicaStep(DataParallel<ImageModel>& ddp, const ReplicaStepOptions& options);

  // What backward() starts from.
  at::Tensor scaled(const at::Tensor& loss) const { return scaler_ ? scaler_->scale(loss) : loss; }
  // average(), then step(). Throws Exception with the root cause, and for gradients that are not
  // finite, where that is known (DataParallelOptions::finite_check, clip_grad_norm), unless their scale can be lowered:
  // then the step is skipped, on every rank.
  void finish() {
    average();
    step();
  }
  // The part that communicates, where it is one: a sharded optimizer averages in step().
  void average();
  void step();
  // Steps that were skipped; whether the last one was.
  std::int64_t skipped() const { return skipped_; }
  bool last_was_skipped() const { return ddp_.reducer().skips_step(); }

  std::size_t optimizer_bytes() const { return whole_ ? whole_->state_bytes() : sharded_->state_bytes(); }
  // For checkpoints: optimizer, scale of the loss, skipped steps.
  void state(StateDict& dict);

 private:
  void step_weights();
  void require_finite_gradients() const;
  [[noreturn]] void refuse(const std::string& non_finite) const;

  DataParallel<ImageModel>& ddp_;
  ReplicaStepOptions options_;
  std::optional<Optimizer> whole_;  // one of the two
  std::optional<ShardedOptimizer> sharded_;
  std::optional<LossScaler> scaler_;
  const c10::Device device_;
  std::int64_t skipped_ = 0;
};

}  // namespace tutti
