// A table of one period in the element type, so that writing and checking 64 MB costs no arithmetic in double.
#include "bench/collectives/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>

#include "tutti/comm/collectives.h"

namespace tutti::bench {
namespace {

double fold(DType dtype, ReduceOp op, double x, double y) {
  if (dtype == DType::kBool && op == ReduceOp::kSum) op = ReduceOp::kBor;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPremulSum:
      return x + y;
    case ReduceOp::kProduct:
      return x * y;
    case ReduceOp::kMin:
      return std::min(x, y);
    case ReduceOp::kMax:
      return std::max(x, y);
    case ReduceOp::kBand:
      return double(std::int64_t(x) & std::int64_t(y));
    case ReduceOp::kBor:
      return double(std::int64_t(x) | std::int64_t(y));
    case ReduceOp::kBxor:
      return double(std::int64_t(x) ^ std::int64_t(y));
  }
  return 0;
}

// Calls `use` with a T* for the dtype.
template <class Use>
auto as_elements(DType dtype, std::byte* data, const Use& use) {
  switch (dtype) {
    case DType::kF32:
      return use(reinterpret_cast<float*>(data));
    case DType::kF64:
      return use(reinterpret_cast<double*>(data));
    case DType::kF16:
      return use(reinterpret_cast<Half*>(data));
    case DType::kBF16:
      return use(reinterpret_cast<BFloat16*>(data));
    case DType::kI8:
      return use(reinterpret_cast<std::int8_t*>(data));
    case DType::kU8:
      return use(reinterpret_cast<std::uint8_t*>(data));
    case DType::kI32:
      return use(reinterpret_cast<std::int32_t*>(data));
    case DType::kI64:
      return use(reinterpret_cast<std::int64_t*>(data));
    case DType::kBool:
      return use(reinterpret_cast<bool*>(data));
    case DType::kC64:
      return use(reinterpret_cast<std::complex<float>*>(data));
    case DType::kC128:
      break;
  }
  return use(reinterpret_cast<std::complex<double>*>(data));
}

template <class T>
T to_element(double value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else if constexpr (is_complex(dtype_of<T>()))
    return T(typename T::value_type(value), 0);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::int64_t(value));  // wraps, as the sums do
  else if constexpr (std::is_same_v<T, Half>)
    return to_half(float(value));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(float(value));
  else
    return T(value);
}

template <class T>
double to_number(T element) {
  if constexpr (sizeof(T) == 2)
    return to_float(element);
  else if constexpr (is_complex(dtype_of<T>()))
    return element.imag() == 0 ? double(element.real()) : std::nan("");
  else
    return double(element);
}

// An average of 16-bit numbers may be rounded twice.
double tolerance(DType dtype, ReduceOp op) {
  if (op != ReduceOp::kAvg && op != ReduceOp::kPremulSum) return 0;
  return size_of(dtype) == 2 ? 1e-2 : dtype == DType::kF32 || dtype == DType::kC64 ? 1e-6 : 1e-15;
}

}  // namespace

double Pattern::factor(int rank) { return 0.5 * (rank % 4 + 1); }

double Pattern::brought(int rank, std::size_t element) const {
  const std::size_t place = element % kPeriod;
  if (dtype == DType::kBool) return double((place + std::size_t(rank)) % 3 == 0);
  // Products stay small: only one rank brings a 2.
  if (op == ReduceOp::kProduct) return place % std::size_t(ranks) == std::size_t(rank) ? 2 : 1;
  return double((place * 3 + std::size_t(rank) * 5) % 7);
}

double Pattern::reduced(std::size_t element, int count) const {
  if (count == 0) return 0;  // of rank 0 in an exscan, which gets nothing
  const auto from = [&](int rank) {
    return brought(rank, element) * (op == ReduceOp::kPremulSum ? factor(rank) : 1.0);
  };
  double value = from(0);
  for (int rank = 1; rank < count; ++rank) value = fold(dtype, op, value, from(rank));
  if (op != ReduceOp::kAvg) return value;
  value /= count;
  return is_floating(dtype) || is_complex(dtype) ? value : std::trunc(value);
}

void Pattern::write(int rank, std::byte* data, std::size_t count) const {
  as_elements(dtype, data, [&](auto* elements) {
    using T = std::remove_pointer_t<decltype(elements)>;
    std::array<T, kPeriod> table;
    for (std::size_t i = 0; i < kPeriod; ++i) table[i] = to_element<T>(brought(rank, i));
    for (std::size_t i = 0; i < count; ++i) elements[i] = table[i % kPeriod];
  });
}

std::size_t Pattern::count_wrong(const std::byte* data, std::size_t count,
                                 const std::function<double(std::size_t)>& expected) const {
  const double allowed = tolerance(dtype, op);
  return as_elements(dtype, const_cast<std::byte*>(data), [&](const auto* elements) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(elements)>>;
    std::array<double, kPeriod> table;
    for (std::size_t i = 0; i < kPeriod; ++i) table[i] = to_number(to_element<T>(expected(i)));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double want = table[i % kPeriod], got = to_number(elements[i]);
      wrong += !(std::abs(got - want) <= allowed * std::abs(want));
    }
    return wrong;
  });
}

}  // namespace tutti::bench
