// The loops behind elementwise.h, compiled once per instruction set: each elementwise_<isa>.cc defines TUTTI_ISA and
// includes this file. Not for other includes.
//
// exp(x) = 2^n exp(r), where n is x / log 2 rounded and |r| <= log(2) / 2. Adding 1.5 x 2^(bits of the mantissa)
// rounds, and leaves n in the lowest bits, from where it is shifted into an exponent. exp(r) is Taylor's polynomial,
// long enough for the type. The loops are plain, compilers vectorise them; without contraction to fused multiply-adds,
// so that the bits are the same whatever the CPU.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tutti/base/independent_loop.h"
#include "tutti/base/kernels/elementwise_isa.h"

namespace tutti::kernels::TUTTI_ISA {
namespace {

constexpr std::size_t kLanes = 32;

// kMost leaves the reciprocal of exp() a normal number: one that is not takes a hundred cycles.
template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissa = 23, kBias = 127, kTerms = 7;
  static constexpr float kLeast = -87, kMost = 80, kRounder = 0x1.8p23f;
  static constexpr float kLog2High = 0x1.62e4p-1f, kLog2Low = 0x1.7f7d1cp-20f;  // the first has bits to spare for n
};
template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023, kTerms = 13;
  static constexpr double kLeast = -708, kMost = 700, kRounder = 0x1.8p52;
  static constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
};

// 1 / k!
constexpr double inverse_factorial(int k) { return k <= 1 ? 1.0 : inverse_factorial(k - 1) / k; }

template <class T, int kTerm>
[[gnu::always_inline]] inline T taylor(T r, T value) {
  value = value * r + T(inverse_factorial(kTerm));
  if constexpr (kTerm == 0)
    return value;
  else
    return taylor<T, kTerm - 1>(r, value);
}

// Of a number between kLeast and kMost, or what the nearer of them gives.
template <class T>
[[gnu::always_inline]] inline T exp_within(T x) {
  using F = Format<T>;
  using Bits = typename F::Bits;
  x = x < F::kLeast ? F::kLeast : x;
  x = x > F::kMost ? F::kMost : x;
  const T rounded = x * T(0x1.71547652b82fep0) + F::kRounder;
  const T n = rounded - F::kRounder;
  const T r = (x - n * F::kLog2High) - n * F::kLog2Low;
  const T power = std::bit_cast<T>(Bits((std::bit_cast<Bits>(rounded) + Bits(F::kBias)) << F::kMantissa));
  return taylor<T, F::kTerms - 1>(r, T(inverse_factorial(F::kTerms))) * power;
}
template <class T>
[[gnu::always_inline]] inline T exp_of(T x) {
  const T value = exp_within(x);
  return x < Format<T>::kLeast ? T(0) : value;
}

// Each lane takes every kLanes-th number, and the lanes are joined in pairs: the same order with vectors of any width.
template <class T, class Take, class Join>
[[gnu::always_inline]] inline T in_lanes(std::size_t count, T start, Take take, Join join) {
  T lanes[kLanes];
  for (T& lane : lanes) lane = start;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    TUTTI_INDEPENDENT
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = join(lanes[lane], take(i + lane));
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) lanes[lane] = join(lanes[lane], take(i));
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] = join(lanes[lane], lanes[lane + width]);
  return lanes[0];
}

template <class T>
T largest_of(const T* x, std::size_t count) {
  return in_lanes<T>(
      count, -std::numeric_limits<T>::infinity(), [&](std::size_t i) { return x[i]; },
      [](T a, T b) { return b > a ? b : a; });
}

template <class T>
T exponentials(T* x, std::size_t count, T shift) {
  return in_lanes<T>(
      count, T(0),
      [&](std::size_t i) {
        x[i] = exp_of(x[i] - shift);
        return x[i];
      },
      [](T a, T b) { return a + b; });
}

template <class T>
void softmax_gradient(const T* __restrict p, T* __restrict g, std::size_t count, T product) {
  for (std::size_t i = 0; i < count; ++i) g[i] = p[i] * (g[i] - product);
}

// sigmoid(2 u), and 2 du/dx.
constexpr double kTwice = 1.5957691216057307117597842397375;  // 2 sqrt(2 / pi)
constexpr double kCubic = 0.044715;
template <class T>
[[gnu::always_inline]] inline T gate(T x) {
  return T(1) / (T(1) + exp_within(-(T(kTwice) * x) * (T(1) + T(kCubic) * x * x)));
}

template <class T>
void gelu_values(const T* x, T* y, std::size_t count) {
  TUTTI_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * gate(x[i]);
}

template <class T>
void gelu_gradient(const T* x, const T* of_y, T* of_x, std::size_t count) {
  TUTTI_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const T open = gate(x[i]);
    const T slope = T(kTwice) * (T(1) + T(3 * kCubic) * x[i] * x[i]);
    of_x[i] = of_y[i] * (open + x[i] * open * (T(1) - open) * slope);
  }
}

[[gnu::always_inline]] inline std::uint32_t hash(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}
[[gnu::always_inline]] inline bool stays(const MaskRow& row, std::uint32_t i) {
  const auto low = std::uint32_t(row.key), high = std::uint32_t(row.key >> 32);
  return hash(hash((row.first + i) ^ low) + high) >= row.below;
}
template <class T>
void fill_mask(const MaskRow& row, T scale, T* mask, std::size_t count) {
  const MaskRow of_row = row;  // no store changes it
  for (std::uint32_t i = 0; i < std::uint32_t(count); ++i) mask[i] = stays(of_row, i) ? scale : T(0);
}
template <class T>
void multiply_by_mask(const MaskRow& row, T scale, T* x, std::size_t count) {
  const MaskRow of_row = row;
  for (std::uint32_t i = 0; i < std::uint32_t(count); ++i) x[i] *= stays(of_row, i) ? scale : T(0);
}

template <class T>
constexpr ElementwiseLoops<T> kLoops = {largest_of<T>,    exponentials<T>, softmax_gradient<T>, gelu_values<T>,
                                        gelu_gradient<T>, fill_mask<T>,    multiply_by_mask<T>};

}  // namespace

const AllElementwiseLoops kElementwiseLoops = {kLoops<float>, kLoops<double>};

}  // namespace tutti::kernels::TUTTI_ISA
