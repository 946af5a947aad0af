#pragma once
// The arithmetic of gradients and optimizers over whole tensors, on any device. CPU tensors use the loops of
// optim/kernels/update.h, other devices ATen's operators, with the same formulas. Tensors have no holes, and
// those of one call have the same strides. f32 and f64, unless it says otherwise.
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "tutti/parallel/gradients/norm.h"
#include "tutti/parallel/optim/kernels/update.h"

namespace tutti {

// On the CPU. Any floating-point type, and complex numbers.
bool all_finite(const at::Tensor& values);
// A number on the device of `values` (of which there is one at least) that is finite exactly if all of them are. Does
// not wait for the device. Types as above.
at::Tensor greatest_magnitude(const at::Tensor& values);
// Of each tensor. On the CPU the bits depend neither on the number of threads nor on strides. Of tensors on a GPU,
// which may have any type and strides, the host reads all sums in one copy; a second one if a sum is not finite.
std::vector<SumOfSquares> squares_of(std::span<const at::Tensor> tensors);
// Of 0-dim tensors. The host reads those that are on one GPU in one copy.
std::vector<double> values_of(std::span<const at::Tensor> numbers);
void scale_tensor(const at::Tensor& values, double factor);
void clamp_tensor(const at::Tensor& values, double limit);  // to +-limit; a NaN stays one
// One step of a rule that acts on each element alone. `state`: flat, in the order of the elements in memory, as many
// tensors as the formula has.
void update_tensor(const Update& update, const at::Tensor& weight, const at::Tensor& gradient,
                   std::span<const at::Tensor> state);

// All elements of a tensor without holes, as they lie in memory.
at::Tensor in_order_of_memory(const at::Tensor& dense);

}  // namespace tutti
