#pragma once
// Tensors of PyTorch as buffers of a Request.
#include <ATen/core/Tensor.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "tutti/comm/request.h"

namespace tutti::python {

using Tensors = std::vector<at::Tensor>;

// The elements of a tensor as a verb counts them. Types that no reduction of ours knows are transferred as bytes.
struct Elements {
  DType dtype;
  std::size_t per;  // of `dtype` in one element of the tensor
};
Elements elements_of(const at::Tensor& tensor);
// Of a tensor that is reduced: throws for types that cannot be.
DType reduced_type_of(const at::Tensor& tensor);
// The type in which tensors of a type are reduced if their own cannot be.
std::optional<at::ScalarType> wider_type_of(at::ScalarType type);

Reduction reduction_of(const c10d::ReduceOp& op);

// Throws, with both, unless a tensor has this type.
void require_type(const char* verb, const at::Tensor& tensor, at::ScalarType type);

// Whether they are one after another in memory, as one tensor would be.
bool are_adjacent(const Tensors& tensors);

}  // namespace tutti::python
