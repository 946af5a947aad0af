#include "tutti/models/transformer/rotary.h"

#include <ATen/Functions.h>

namespace tutti {

RotaryPositions::RotaryPositions(const TransformerConfig& config) {
  if (config.position != PositionKind::kRotary) return;
  const auto dtype = config.precision == Precision::kF64 ? at::kDouble : at::kFloat;
  const int rotated = config.rotary_size();
  const at::Tensor exponent = at::arange(0, rotated, 2, at::kDouble) / double(rotated);
  const at::Tensor frequency = at::pow(config.rotary_base, exponent).reciprocal();
  const at::Tensor angle = at::outer(at::arange(config.sequence_length, at::kDouble), frequency);
  cosines_ = angle.cos().to(dtype);
  sines_ = angle.sin().to(dtype);
}

at::Tensor RotaryPositions::rotate(const at::Tensor& x, const at::Tensor& positions) {
  if (!cosines_.defined()) return x;
  if (cosines_.device() != x.device()) {
    cosines_ = cosines_.to(x.device());
    sines_ = sines_.to(x.device());
  }
  const std::int64_t half = cosines_.size(-1), rest = x.size(-1) - 2 * half;
  const auto at_positions = [&](const at::Tensor& table) {
    const at::Tensor rows = table.index_select(0, positions.reshape({-1}));
    return rows.view({positions.size(0), positions.size(1), 1, half}).to(x.scalar_type());
  };
  const auto parts = x.split_with_sizes({half, half, rest}, -1);
  const at::Tensor cosines = at_positions(cosines_), sines = at_positions(sines_);
  const at::Tensor first = parts[0] * cosines - parts[1] * sines;
  const at::Tensor second = parts[1] * cosines + parts[0] * sines;
  return rest > 0 ? at::cat({first, second, parts[2]}, -1) : at::cat({first, second}, -1);
}

}  // namespace tutti
