#pragma once
// GELU by tanh, as Megatron-LM and GPT-2 have it.
#include <ATen/core/Tensor.h>

namespace tutti {

// Of every number of x, whatever its shape; with a gradient. f32 and f64 are computed in their own type
// by tutti/base/kernels/elementwise.h, other types as at::gelu(x, "tanh") does.
at::Tensor gelu_tanh(const at::Tensor& x);

}  // namespace tutti
