#pragma once
// The factors of dropout on a GPU: RandomMask's, bit for bit, by ATen's operators. Nothing waits for the device.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tutti/parallel/tensor/random_mask.h"

namespace tutti {

// RandomMask::row_key() of positions and of what distinguishes rows of one position: i64, of shapes that broadcast.
at::Tensor row_keys(const RandomMask& random, const at::Tensor& positions, const at::Tensor& of);
// 1 / (1 - p) or 0 for each key and column (i64 [columns]): [keys..., columns].
at::Tensor dropout_factors(const RandomMask& random, const at::Tensor& keys, const at::Tensor& columns,
                           at::ScalarType type);

}  // namespace tutti
