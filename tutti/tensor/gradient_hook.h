#pragma once
// What is to happen when a gradient has come.
#include <functional>

#include "tutti/tensor/compat.h"

namespace tutti {

// Calls `act` each time that backward() has added to `.grad` of this leaf, on autograd's thread, and as long as the
// result lives: it is the leaf's AccumulateGrad node, which LibTorch holds weakly. An exception of `act` comes out of
// backward().
[[nodiscard]] compat::AccumulatorPtr after_gradient(const at::Tensor& leaf, std::function<void()> act);

}  // namespace tutti
