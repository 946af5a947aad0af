#pragma once
// From what was read to the tensors of a model.
#include <ATen/core/Tensor.h>

#include "tutti/models/dlrm/batches.h"
#include "tutti/models/dlrm/loss.h"
#include "tutti/models/dlrm/model.h"

namespace tutti::dlrm {

// `views` are step.views(), which have to stay as long as the batch.
ModelBatch model_batch(const Model& model, const StepBatch& step, std::span<const LookupsView> views);
at::Tensor targets_of(const Model& model, const StepBatch& step);  // [my samples, 1]
// loss.h, on tensors of the model's type; `gradient` may be undefined.
LossSums loss_of(const LossOptions& options, const at::Tensor& predictions, const at::Tensor& targets, double divisor,
                 const at::Tensor& gradient);

}  // namespace tutti::dlrm
