#include "tutti/parallel/gradients/norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/parallel/gradients/average_tiles.h"
#include "tutti/parallel/optim/kernels/update.h"

namespace tutti {
namespace {

constexpr int kSquareExponent = SumOfSquares::kExponent;

double scaled_squares(const double* values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = std::ldexp(values[i], kSquareExponent / 2);
    sum += value * value;
  }
  return sum;
}

double norm_of_scaled(double squares) { return std::ldexp(std::sqrt(squares), -kSquareExponent / 2); }

}  // namespace

bool SumOfSquares::finite() const { return std::isfinite(scaled); }

double SumOfSquares::norm() const {
  return std::isfinite(value) || !finite() ? std::sqrt(value) : norm_of_scaled(scaled);
}

SumOfSquares squares_of_tile(DType dtype, const void* values, std::size_t count) {
  const double sum = sum_of_squares(dtype, values, count);
  if (std::isfinite(sum)) return {sum, std::ldexp(sum, kSquareExponent)};
  return {sum, dtype == DType::kF64 ? scaled_squares(static_cast<const double*>(values), count) : sum};
}

SumOfSquares squares_of(DType dtype, const void* values, std::size_t count) {
  const auto* const data = static_cast<const std::byte*>(values);
  const auto run_length = std::size_t(kTileRun);
  std::vector<SumOfSquares> sums((count + run_length - 1) / run_length);
  at::parallel_for(0, std::int64_t(sums.size()), 1, [&](std::int64_t first, std::int64_t last) {
    for (auto run = std::size_t(first); run < std::size_t(last); ++run) {
      const std::size_t begin = run * run_length;
      sums[run] = squares_of_tile(dtype, data + begin * size_of(dtype), std::min(run_length, count - begin));
    }
  });
  SumOfSquares total;
  for (const auto& sum : sums) total += sum;
  return total;
}

}  // namespace tutti
