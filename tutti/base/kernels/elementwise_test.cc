// exp, softmax, GELU and masks against the library's functions in higher precision; the loops of all instruction sets
// give the same bits, for lengths that fill vectors and that do not.
#include "tutti/base/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/base/kernels/elementwise_isa.h"

namespace tutti {
namespace {

template <class T>
class Elementwise : public testing::Test {
 public:
  static std::vector<T> drawn(std::size_t count, double width) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> numbers(-width, width);
    std::vector<T> x(count);
    for (T& value : x) value = T(numbers(random));
    return x;
  }
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Types);

TYPED_TEST(Elementwise, ExponentialsAreWithinTwoUnitsOfTheLibrary) {
  using T = TypeParam;
  const auto given = TestFixture::drawn(20'000, sizeof(T) == 4 ? 80 : 700);
  auto x = given;
  exponentials(x.data(), x.size(), T(0));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double right = std::exp((long double)given[i]);
    ASSERT_LE(std::abs((long double)x[i] - right), 2 * std::numeric_limits<T>::epsilon() * right) << given[i];
  }
}

TYPED_TEST(Elementwise, ExponentialsAtTheEndsOfTheirRange) {
  using T = TypeParam;
  std::vector<T> x = {0, -TestFixture::kInfinity, T(-1e4), std::numeric_limits<T>::quiet_NaN()};
  exponentials(x.data(), x.size(), T(0));
  EXPECT_EQ(x[0], 1);
  EXPECT_EQ(x[1], 0);
  EXPECT_EQ(x[2], 0);
  EXPECT_TRUE(std::isnan(x[3]));
}

TYPED_TEST(Elementwise, ASoftmaxSumsToOneAndItsGradientIsRight) {
  using T = TypeParam;
  for (const std::size_t count : {1u, 31u, 32u, 33u, 1000u}) {
    auto p = TestFixture::drawn(count, 300), g = TestFixture::drawn(count, 1);
    const auto x = p, of_p = g;
    const T most = largest_of(p.data(), count);
    EXPECT_EQ(most, *std::max_element(x.begin(), x.end()));
    const T sum = exponentials(p.data(), count, most);
    double product = 0, total = 0;
    for (std::size_t i = 0; i < count; ++i) total += double(p[i] /= sum), product += double(p[i]) * double(g[i]);
    EXPECT_NEAR(total, 1, count * double(std::numeric_limits<T>::epsilon()));
    softmax_gradient(p.data(), g.data(), count, T(product));
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(g[i], p[i] * (of_p[i] - T(product)));
  }
  EXPECT_EQ(largest_of<T>(nullptr, 0), -TestFixture::kInfinity);
}

// y and dy/dx by tanh, in long double.
struct Gelu {
  long double value, slope;
  explicit Gelu(long double x) {
    const long double factor = std::sqrt(2 / std::acos(-1.0L)), cubic = 0.044715L;
    const long double turned = std::tanh(factor * (x + cubic * x * x * x));
    value = x * (1 + turned) / 2;
    slope = (1 + turned) / 2 + x * (1 - turned * turned) / 2 * factor * (1 + 3 * cubic * x * x);
  }
};

TYPED_TEST(Elementwise, GeluAndItsGradient) {
  using T = TypeParam;
  auto x = TestFixture::drawn(4'000, 6);
  x.insert(x.end(), {0, T(-0.0), 40, -40, T(1e-30)});
  std::vector<T> y(x.size()), of_x(x.size(), 2);
  gelu_values(x.data(), y.data(), x.size());
  gelu_gradient(x.data(), of_x.data(), of_x.data(), x.size());
  const double close = 64 * double(std::numeric_limits<T>::epsilon());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Gelu right(x[i]);
    ASSERT_NEAR(double(y[i]), double(right.value), close * std::max(1e-2, std::abs(double(right.value)))) << x[i];
    ASSERT_NEAR(double(of_x[i]), 2 * double(right.slope), close) << x[i];
  }
  EXPECT_EQ(y[x.size() - 3], T(40));
}

TYPED_TEST(Elementwise, AMaskDropsTheSameElementsFromWhereverItBegins) {
  using T = TypeParam;
  MaskRow row{.key = 77, .below = 1u << 30};
  std::vector<T> whole(1000), part(900);
  fill_mask(row, T(2), whole.data(), whole.size());
  row.first = 100;
  fill_mask(row, T(2), part.data(), part.size());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 100));
  EXPECT_NEAR(double(std::count(whole.begin(), whole.end(), T(0))), 250, 45);
  std::vector<T> x(900, 3);
  multiply_by_mask(row, T(2), x.data(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 3 * part[i]);
}

std::vector<const kernels::AllElementwiseLoops*> all_loops() {
  std::vector<const kernels::AllElementwiseLoops*> loops = {&kernels::generic::kElementwiseLoops};
#ifdef __x86_64__
  if (cpu_has(Isa::kAvx2)) loops.push_back(&kernels::avx2::kElementwiseLoops);
  if (cpu_has(Isa::kAvx512)) loops.push_back(&kernels::avx512::kElementwiseLoops);
#endif
  return loops;
}

TYPED_TEST(Elementwise, LoopsOfAllInstructionSetsHaveTheSameBits) {
  using T = TypeParam;
  for (const std::size_t count : {0u, 1u, 7u, 32u, 65u, 1001u}) {
    const auto x = TestFixture::drawn(count, 20);
    std::vector<std::vector<T>> results;
    for (const auto* all : all_loops()) {
      const kernels::ElementwiseLoops<T>* loops;
      if constexpr (sizeof(T) == 4)
        loops = &all->f32;
      else
        loops = &all->f64;
      auto p = x, g = x;
      std::vector<T> y(count),
          result = {loops->largest_of(x.data(), count), loops->exponentials(p.data(), count, T(3))};
      loops->softmax_gradient(p.data(), g.data(), count, T(0.25));
      loops->gelu_values(x.data(), y.data(), count);
      for (const auto& part : {p, g, y}) result.insert(result.end(), part.begin(), part.end());
      loops->gelu_gradient(x.data(), x.data(), y.data(), count);
      result.insert(result.end(), y.begin(), y.end());
      const MaskRow row{.key = 0x123456789ABCDEF0, .first = 5, .below = 1u << 30};
      loops->fill_mask(row, T(1.25), y.data(), count);
      loops->multiply_by_mask(row, T(1.25), p.data(), count);
      for (const auto& part : {y, p}) result.insert(result.end(), part.begin(), part.end());
      results.push_back(result);
    }
    for (const auto& result : results) EXPECT_EQ(result, results.front()) << count;
  }
}

}  // namespace
}  // namespace tutti
