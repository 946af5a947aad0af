#pragma once
// Gradients of parameters that every rank of a tensor group has, but of which each has seen only its rows of the
// sequence: norms, and biases of row layers, under sequence parallelism.
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/tensor/parameter_layout.h"

namespace tutti {

// Those whose layout says so (ParameterLayout::partial_gradient).
std::vector<at::Tensor> with_partial_gradients(std::span<const PlacedParameter> parameters);

// At the end of a step, after backward() of all micro batches and after the average over data-parallel ranks or before
// it: adds up .grad of these over the group, in one coalesced all_reduce. Every rank gives the same list; where a
// parameter has got no gradient it counts as zero. Group{} or one rank: nothing is done.
void sum_over_tensor_group(const Group& group, std::span<const at::Tensor> parameters);

}  // namespace tutti
