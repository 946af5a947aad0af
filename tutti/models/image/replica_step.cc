#include "tutti/models/image/replica_step.h"

#include "tutti/tensor/device_region.h"

namespace tutti {

ReplicaStep::ReplicaStep(DataParallel<ImageModel>& ddp, const ReplicaStepOptions& options)
    : ddp_(ddp), options_(options), device_(ddp.module().parameters().front().device()) {
  if (options.sharded_stage > 0) {
    sharded_.emplace(ddp, options.rule, ShardedOptimizerOptions{.stage = options.sharded_stage});
  } else {
    whole_.emplace(ddp.module(), options.rule);
  }
  if (options.scales_loss) scaler_.emplace(ddp);
}

void ReplicaStep::average() {
  if (!whole_) return;
  const DeviceRegion region("average gradients", device_);
  ddp_.finish();
}

void ReplicaStep::step() {
  const DeviceRegion region("optimizer", device_);
  step_weights();
  if (scaler_) {
    skipped_ += ddp_.reducer().skips_step();
    scaler_->update();
  } else {
    require_finite_gradients();
  }
}

void ReplicaStep::step_weights() {
  if (whole_ && ddp_.reducer().skips_step()) return;
  if (options_.clip_grad_norm > 0) {
    const auto norm =
        whole_ ? whole_->clip_grad_norm(options_.clip_grad_norm) : sharded_->clip_grad_norm(options_.clip_grad_norm);
    if (!scaler_ && !norm.finite()) {
      require_finite_gradients();  // knows the rank, also where every rank steps all weights
      refuse(norm.non_finite);
    }
  }
  if (whole_) {
    whole_->step();
  } else {
    sharded_->step();
  }
}

void ReplicaStep::state(StateDict& dict) {
  if (whole_) {
    dict.add("optimizer", *whole_);
  } else {
    dict.add("optimizer", *sharded_);
  }
  dict.optional_value("left_out", skipped_);
  if (scaler_) scaler_->state(dict);
}

void ReplicaStep::require_finite_gradients() const {
  const auto found = ddp_.non_finite();
  if (!found) return;
  refuse(found->rank < 0 ? "the gradient of " + found->parameter + " overflowed while it was averaged"
                         : non_finite_gradient(found->parameter, found->rank));
}

void ReplicaStep::refuse(const std::string& non_finite) const {
  throw Exception(Error{.code = Code::kNonFinite,
                        .detail = non_finite,
                        .hint = "a smaller learning rate may help",
                        .group = ddp_.reducer().group().name(),
                        .rank = ddp_.reducer().group().rank()});
}

}  // namespace tutti
