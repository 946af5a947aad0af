#pragma once
// Batch normalisation over the batches of all ranks: mean and variance of what all have together, as one process with
// the whole batch would take them.
//
//   auto synced = tutti::sync_batch_norms(model, world);      // every BatchNorm1d, 2d, 3d of the tree
//   tutti::DataParallel ddp(model, world);
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/group.h"

namespace torch::nn {
class Module;
}

namespace tutti {

// While this object exists, the modules that it names normalise over all ranks when they train. The modules stay the
// same objects, in Sequential, as a typed member or as an AnyModule, and so do the names of their parameters.
class SyncedBatchNorms {
 public:
  ~SyncedBatchNorms();
  SyncedBatchNorms(SyncedBatchNorms&&) noexcept;
  SyncedBatchNorms& operator=(SyncedBatchNorms&&) = delete;
  const std::vector<std::string>& names() const;  // of the modules: "features.1"

 private:
  friend SyncedBatchNorms sync_batch_norms(const std::shared_ptr<torch::nn::Module>&, const Group&);
  struct State;
  explicit SyncedBatchNorms(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Collective; makes a separate group. Then every rank must run forward() and backward() of those modules in the same
// order. Throws Exception if the tree has no such module, if one has neither weights nor running statistics (nothing to
// recognise it by), or if one is synchronised already. A forward costs one all_gather and a backward one all_reduce, of
// a few numbers for each channel. There is no second derivative.
[[nodiscard]] SyncedBatchNorms sync_batch_norms(const std::shared_ptr<torch::nn::Module>& module, const Group& group);

// The function itself, of a batch [n, channels, ...] that is training: updates running_mean and running_var, which may
// be undefined, as may weight and bias. Ranks may have different n, and none, as long as there are two values for each
// channel together.
at::Tensor sync_batch_norm(const Group& group, const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& running_mean, const at::Tensor& running_var,
                           double momentum, double eps);

}  // namespace tutti
