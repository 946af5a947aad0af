#pragma once
// What a step of an optimizer does to one weight, for the loops over parameters (parallel/optim/kernels/update_impl.h)
// and those over rows of embedding tables (embedding/bags_impl.h). T: float or double. Always inlined: each loop is
// compiled for its instruction set.
#include <cmath>

namespace tutti {

// SGD: the new weight.
template <class T>
[[gnu::always_inline]] inline T plain_update(T weight, T gradient, T step_size) {
  return weight - step_size * gradient;
}

// Adagrad: the new weight. `sum`: of the squares of all gradients so far, this one included afterwards.
template <class T>
[[gnu::always_inline]] inline T adagrad_update(T weight, T gradient, T& sum, T step_size, T eps) {
  sum += gradient * gradient;
  return weight - step_size * (gradient / (std::sqrt(sum) + eps));
}

}  // namespace tutti
