#pragma once
// Rotary positions (Su et al. 2021): the first 2 n channels of a head are pairs (i, n + i), as in GPT-NeoX. Each pair
// is rotated by the angle of its position.
#include <ATen/core/Tensor.h>

#include "tutti/planning/transformer_config.h"

namespace tutti {

// The tables of one model, which its layers share. One thread at a time.
class RotaryPositions {
 public:
  explicit RotaryPositions(const TransformerConfig& config);
  // x [rows, batch, heads, head_size]; positions i64 [rows, batch or 1]. Returns x if the config has other positions.
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions);

 private:
  at::Tensor cosines_, sines_;  // [positions of the sequence, rotated channels / 2]
};

}  // namespace tutti
