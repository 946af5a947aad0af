#include "tutti/parallel/pipeline/tied_weights.h"

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include "tutti/tensor/collectives.h"

namespace tutti {

void tie_weight(const Group& group, const at::Tensor& weight) {
  if (!group || group.size() == 1) return;
  broadcast(group, weight.detach());
}

void sum_tied_gradients(const Group& group, const at::Tensor& weight) {
  if (!group || group.size() == 1) return;
  const c10::AutoGradMode off(false);
  at::Tensor& gradient = weight.mutable_grad();
  gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(weight);
  all_reduce(group, gradient);
}

}  // namespace tutti
