#pragma once
// m = momentum * m + (g + weight_decay * w); w -= lr * (nesterov ? g + momentum * m : m), in one pass. The loops are
// plain so that compilers vectorise them; memory is what bounds them.
#include <cstdint>

#include "tutti/parallel/optim/sgd.h"

namespace tutti {

template <class T>
void apply_sgd(T* __restrict w, const T* __restrict g, T* __restrict m, std::int64_t count, const SgdOptions& options) {
  const T lr = T(options.lr), momentum = T(options.momentum), decay = T(options.weight_decay);
  if (options.nesterov) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T gradient = g[i] + decay * w[i];
      m[i] = momentum * m[i] + gradient;
      w[i] -= lr * (gradient + momentum * m[i]);
    }
  } else if (decay != 0) {
    for (std::int64_t i = 0; i < count; ++i) {
      m[i] = momentum * m[i] + (g[i] + decay * w[i]);
      w[i] -= lr * m[i];
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      m[i] = momentum * m[i] + g[i];
      w[i] -= lr * m[i];
    }
  }
}

}  // namespace tutti
