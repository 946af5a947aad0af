#pragma once
// The arithmetic of gradients and optimizers over whole tensors, on any device. CPU tensors use the loops of
// optim/kernels/update.h, other devices ATen's operators, with the same formulas. Tensors have no holes, and
// those of one call have the same strides. f32 and f64, unless it says otherwise.
#include <ATen/core/Tensor.h>

#include <span>

#include "tutti/parallel/gradients/norm.h"
#include "tutti/parallel/optim/kernels/update.h"

namespace tutti {

// Waits for the device; so does squares_of(). Any floating-point type, and complex numbers.
bool all_finite(const at::Tensor& values);
// The same of `count` elements from `begin` on, in the order of memory.
bool all_finite(const at::Tensor& values, std::int64_t begin, std::int64_t count);
// On the CPU the bits depend neither on the number of threads nor on strides.
SumOfSquares squares_of(const at::Tensor& values);
void scale_tensor(const at::Tensor& values, double factor);
void clamp_tensor(const at::Tensor& values, double limit);  // to +-limit; a NaN stays one
// One step of a rule that acts on each element alone. `state`: flat, in the order of the elements in memory, as many
// tensors as the formula has.
void update_tensor(const Update& update, const at::Tensor& weight, const at::Tensor& gradient,
                   std::span<const at::Tensor> state);

// All elements of a tensor without holes, as they lie in memory.
at::Tensor in_order_of_memory(const at::Tensor& dense);

}  // namespace tutti
