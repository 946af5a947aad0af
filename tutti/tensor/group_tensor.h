#pragma once
// Tensors for gradients and weights that ranks exchange.
#include <ATen/core/Tensor.h>

#include "tutti/comm/group.h"

namespace tutti {

// [count], zeros, of the type and on the device of `options`; on the CPU in memory that the peers on this host can read
// (Group::allocate). Throws Exception where there is no memory left.
at::Tensor group_tensor(const Group& group, std::int64_t count, const at::TensorOptions& options);
// Elements of `flat` from `offset` on, in its memory, which it keeps. No view for autograd: LibTorch 1.13's zero_grad()
// detaches gradients in place, which views forbid. On the CPU torch::save() writes these elements alone.
at::Tensor alias_of(const at::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace tutti
