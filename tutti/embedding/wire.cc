#include "tutti/embedding/wire.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/base/float16.h"

namespace tutti {
namespace {

constexpr std::int64_t kScaleBytes = sizeof(float);
constexpr float kMost = 127;

std::int64_t one_each(std::int64_t width) { return width; }
std::int64_t byte_each_and_scale(std::int64_t width) { return width + kScaleBytes; }

template <class T>
void encode_i8(const T* row, std::int64_t width, std::byte* to) {
  float largest = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < width; ++i) {
    const float size = std::abs(float(row[i]));
    finite = finite && std::isfinite(size);
    largest = std::max(largest, size);
  }
  const float scale = finite ? largest / kMost : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(to, &scale, kScaleBytes);
  auto* const out = reinterpret_cast<std::int8_t*>(to + kScaleBytes);
  // A tiny row's scale may have lost its digits, or be 0.
  const float by = finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0;
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = by == 0 ? std::int8_t(0) : std::int8_t(std::clamp(std::nearbyint(float(row[i]) * by), -kMost, kMost));
}

template <class T>
void decode_i8(const std::byte* from, std::int64_t width, T* row) {
  float scale;
  std::memcpy(&scale, from, kScaleBytes);
  const auto* const in = reinterpret_cast<const std::int8_t*>(from + kScaleBytes);
  for (std::int64_t i = 0; i < width; ++i) row[i] = T(scale * float(in[i]));
}

}  // namespace

template <class T>
Wire wire_of(WireFormat format) {
  switch (format) {
    case WireFormat::kExact:
      return {sizeof(T) == 4 ? DType::kF32 : DType::kF64, one_each};
    case WireFormat::kBF16:
      return {DType::kBF16, one_each};
    case WireFormat::kI8:
      return {DType::kI8, byte_each_and_scale};
  }
  return {};
}

template <class T>
void encode(WireFormat format, const T* from, std::int64_t rows, std::int64_t width, std::byte* to) {
  TUTTI_INVARIANT(format != WireFormat::kExact, "encode() of rows that are sent unchanged");
  if (format == WireFormat::kBF16) {
    for (std::int64_t i = 0; i < rows * width; ++i) {
      const BFloat16 value = to_bfloat16(float(from[i]));
      std::memcpy(to + i * std::int64_t(sizeof value), &value, sizeof value);
    }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) encode_i8(from + r * width, width, to + r * byte_each_and_scale(width));
}

template <class T>
void decode(WireFormat format, const std::byte* from, std::int64_t rows, std::int64_t width, T* to) {
  TUTTI_INVARIANT(format != WireFormat::kExact, "decode() of rows that are sent unchanged");
  if (format == WireFormat::kBF16) {
    for (std::int64_t i = 0; i < rows * width; ++i) {
      BFloat16 value;
      std::memcpy(&value, from + i * std::int64_t(sizeof value), sizeof value);
      to[i] = T(to_float(value));
    }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) decode_i8(from + r * byte_each_and_scale(width), width, to + r * width);
}

template Wire wire_of<float>(WireFormat);
template Wire wire_of<double>(WireFormat);
template void encode(WireFormat, const float*, std::int64_t, std::int64_t, std::byte*);
template void encode(WireFormat, const double*, std::int64_t, std::int64_t, std::byte*);
template void decode(WireFormat, const std::byte*, std::int64_t, std::int64_t, float*);
template void decode(WireFormat, const std::byte*, std::int64_t, std::int64_t, double*);

}  // namespace tutti
