#pragma once
// A callback for the moment when a gradient is complete.
#include <functional>

#include "tutti/tensor/compat.h"

namespace tutti {

// Calls `act` each time that backward() has added to `.grad` of this leaf, on autograd's thread, as long as you hold
// the result: the leaf's AccumulateGrad node, which LibTorch holds weakly. backward() throws what `act` throws.
[[nodiscard]] compat::AccumulatorPtr after_gradient(const at::Tensor& leaf, std::function<void()> act);

}  // namespace tutti
