#pragma once
// Weights that do not depend on how they are divided: the whole parameter is drawn from generators keyed by a seed and
// by the row, and each rank keeps its boxes of it. It is drawn in pieces of some rows. A piece that no box of this rank
// touches is skipped. Memory beside the result is at most 1 MiB (or one row, if that is larger).
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tutti/parallel/tensor/parameter_layout.h"

namespace tutti {

// `seed` is that of one parameter: seed_at(seed, {.layer = n}) with an n of its own for each (base/random.h).
struct InitialWeights {
  enum class Kind { kNormal, kUniform, kConstant };
  Kind kind = Kind::kNormal;
  double a = 0, b = 0.02;  // mean and standard deviation; bounds; the constant
  std::uint64_t seed = 0;

  static InitialWeights normal(std::uint64_t seed, double deviation = 0.02) {
    return {Kind::kNormal, 0, deviation, seed};
  }
  static InitialWeights uniform(std::uint64_t seed, double bound) { return {Kind::kUniform, -bound, bound, seed}; }
  static InitialWeights constant(double value) { return {Kind::kConstant, value, 0, 0}; }
};

// This rank's tensor of the layout, of type `dtype`. Numbers are drawn as f32 and rounded: another type has the same
// weights. `local_rows`, where the layout divides rows: as many as this, the rest zero (padding); 0: none.
at::Tensor draw_weights(const ParameterLayout& layout, const InitialWeights& initial, at::ScalarType dtype,
                        std::int64_t local_rows = 0);

}  // namespace tutti
