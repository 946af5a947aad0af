#include "tutti/parallel/tensor/partial_gradients.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "tutti/parallel/tensor/division.h"
#include "tutti/tensor/collectives.h"

namespace tutti {

std::vector<at::Tensor> with_partial_gradients(std::span<const PlacedParameter> parameters) {
  std::vector<at::Tensor> partial;
  for (const PlacedParameter& parameter : parameters)
    if (parameter.layout.partial_gradient) partial.push_back(parameter.tensor);
  return partial;
}

void sum_over_tensor_group(const Group& group, std::span<const at::Tensor> parameters) {
  if (ranks_of(group) == 1 || parameters.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameter);
    gradients.push_back(gradient);
  }
  all_reduce_coalesced(group, gradients, ReduceOp::kSum);
}

}  // namespace tutti
