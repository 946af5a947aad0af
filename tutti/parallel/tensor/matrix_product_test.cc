// Products of f32 matrices of any strides, beside LibTorch's of the same numbers in f64; other types, empty matrices.
#include "tutti/parallel/tensor/matrix_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tutti/base/error.h"

namespace tutti {
namespace {

// [n, k] with rows or columns packed, and some elements between them or none.
at::Tensor laid_out(std::int64_t n, std::int64_t k, bool transposed, std::int64_t gap) {
  return transposed ? at::randn({k, n + gap}).narrow(1, 0, n).t() : at::randn({n, k + gap}).narrow(1, 0, k);
}

double error_of(const at::Tensor& is, const at::Tensor& expected) {
  return (is.to(at::kDouble) - expected).abs().max().item<double>();
}

// The rounding of a sum of k products of normal numbers stays far below this.
constexpr double kTolerance = 1e-3;

TEST(MatrixProduct, OfAnyStridesIsLibTorchs) {
  struct {
    std::int64_t n, k, m;
  } const shapes[] = {{1, 1, 1}, {1, 7, 5}, {5, 1, 3}, {4, 9, 1}, {33, 65, 17}, {128, 64, 256}, {700, 40, 30}};
  for (const auto& [n, k, m] : shapes) {
    for (int layout = 0; layout < 8; ++layout) {
      for (const std::int64_t gap : {0, 3}) {
        const at::Tensor a = laid_out(n, k, layout & 1, gap), b = laid_out(k, m, layout & 2, gap);
        const at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
        EXPECT_LT(error_of(matrix_product(a, b), expected), kTolerance) << n << 'x' << k << 'x' << m << ' ' << layout;
        const at::Tensor out = laid_out(n, m, layout & 4, gap), before = out.to(at::kDouble);
        add_matrix_product(out, a, b, 0.5, -2);
        EXPECT_LT(error_of(out, 0.5 * before - 2 * expected), kTolerance) << n << 'x' << k << 'x' << m << ' ' << layout;
      }
    }
  }
}

TEST(MatrixProduct, WritesNothingBetweenTheRows) {
  const at::Tensor all = at::zeros({6, 10});
  add_matrix_product(all.narrow(1, 0, 4), at::ones({6, 3}), at::ones({3, 4}));
  EXPECT_TRUE(at::equal(all.narrow(1, 0, 4), at::full({6, 4}, 3.0f)));
  EXPECT_TRUE(at::equal(all.narrow(1, 4, 6), at::zeros({6, 6})));
}

TEST(MatrixProduct, WithBetaZeroDoesNotReadWhatWasThere) {
  const at::Tensor out = at::full({3, 4}, std::numeric_limits<float>::quiet_NaN());
  add_matrix_product(out, at::ones({3, 2}), at::ones({2, 4}), 0);
  EXPECT_TRUE(at::equal(out, at::full({3, 4}, 2.0f)));
}

TEST(MatrixProduct, OfOtherTypesAndOfNothing) {
  const at::Tensor a = at::randn({5, 6}, at::kDouble), b = at::randn({6, 7}, at::kDouble);
  EXPECT_TRUE(at::equal(matrix_product(a, b), at::mm(a, b)));
  EXPECT_EQ(matrix_product(at::ones({2, 3}, at::kBFloat16), at::ones({3, 2}, at::kBFloat16)).scalar_type(),
            at::kBFloat16);
  EXPECT_TRUE(at::equal(matrix_product(at::ones({2, 0}), at::ones({0, 3})), at::zeros({2, 3})));
  EXPECT_EQ(matrix_product(at::ones({0, 3}), at::ones({3, 4})).numel(), 0);
}

TEST(MatrixProduct, OfWhatDoesNotFitIsRefused) {
  EXPECT_THROW(matrix_product(at::ones({2, 3}), at::ones({4, 5})), Exception);
  EXPECT_THROW(add_matrix_product(at::ones({2, 4}), at::ones({2, 3}), at::ones({3, 5})), Exception);
  EXPECT_THROW(matrix_product(at::ones({2, 3}), at::ones({3})), Exception);
}

}  // namespace
}  // namespace tutti
