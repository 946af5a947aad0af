#pragma once
// The norm of all gradients together, as one vector.
#include <cstddef>
#include <string>

#include "tutti/base/dtype.h"

namespace tutti {

struct GradientNorm {
  double norm = 0;         // before clipping
  std::string non_finite;  // a sentence that names the parameter, and the rank where it is known; empty: all are finite
  bool finite() const { return non_finite.empty(); }
};

// Squares of f32 and f64, added in double: in f32 a sum of many small squares loses what does not fit beside a large
// one. Squares of f64 overflow from 1e154 on, so the sum is kept a second time, scaled.
struct SumOfSquares {
  double value = 0;   // infinite where squares overflow
  double scaled = 0;  // value * 2^kExponent; finite unless an element is a NaN or an infinity
  // Elements are scaled by 2^-600: the square of the greatest f64 is then 2^848. What this flushes to zero is nothing
  // beside a sum that overflows.
  static constexpr int kExponent = -1200;
  bool finite() const;
  double norm() const;
  SumOfSquares& operator+=(const SumOfSquares& other) {
    value += other.value;
    scaled += other.scaled;
    return *this;
  }
};
inline constexpr const char* kNormOverflows = "the norm of the gradients is more than f64 holds";
// On the calling thread.
SumOfSquares squares_of_tile(DType dtype, const void* values, std::size_t count);
// On as many threads as LibTorch uses. The bits do not depend on their number.
SumOfSquares squares_of(DType dtype, const void* values, std::size_t count);

}  // namespace tutti
