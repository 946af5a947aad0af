#include "tutti/models/dlrm/tensors.h"

#include <ATen/ATen.h>

namespace tutti::dlrm {
namespace {

template <class T>
std::span<T> span_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::span<T>(tensor.data_ptr<T>(), std::size_t(tensor.numel())) : std::span<T>();
}

// Floats are not copied.
at::Tensor tensor_of(const std::vector<float>& values, std::vector<std::int64_t> shape, at::ScalarType type) {
  return at::from_blob(const_cast<float*>(values.data()), shape, at::kFloat).to(type);
}

}  // namespace

ModelBatch model_batch(const Model& model, const StepBatch& step, std::span<const LookupsView> views) {
  return {.samples = step.samples,
          .dense = tensor_of(step.dense, {step.mine.size(), model.architecture().dense_features()}, model.type()),
          .lookups = views,
          .number = step.first};
}

at::Tensor targets_of(const Model& model, const StepBatch& step) {
  return tensor_of(step.targets, {step.mine.size(), 1}, model.type());
}

LossSums loss_of(const LossOptions& options, const at::Tensor& predictions, const at::Tensor& targets, double divisor,
                 const at::Tensor& gradient) {
  if (predictions.scalar_type() == at::kDouble) {
    return loss_of<double>(options, span_of<double>(predictions), span_of<double>(targets), divisor,
                           span_of<double>(gradient));
  }
  return loss_of<float>(options, span_of<float>(predictions), span_of<float>(targets), divisor,
                        span_of<float>(gradient));
}

}  // namespace tutti::dlrm
