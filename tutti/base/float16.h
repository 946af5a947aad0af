#pragma once
// The two 16-bit floating point formats, for storage only: arithmetic is done in float.
//   Half: IEEE 754 binary16 (1 sign, 5 exponent, 10 fraction bits).  BFloat16: the upper half of a binary32.
// Conversions from float round to nearest, ties to even, and keep NaN a NaN. All functions are always inlined, because
// they are also compiled for wider instruction sets, and the linker must not share such a copy.
#include <bit>
#include <cstdint>

namespace tutti {

struct Half {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

[[gnu::always_inline]] inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t(value.bits) << 16);
}

[[gnu::always_inline]] inline BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {std::uint16_t((bits >> 16) | 0x40)};  // NaN: quiet, upper payload kept
  return {std::uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

[[gnu::always_inline]] inline float to_float(Half value) {
  const std::uint32_t sign = std::uint32_t(value.bits & 0x8000) << 16, exponent = (value.bits >> 10) & 31,
                      fraction = value.bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = float(fraction) * 0x1p-24f;  // zero or subnormal: exact in float
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

[[gnu::always_inline]] inline Half to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffff;
  const std::uint16_t sign = std::uint16_t((bits >> 16) & 0x8000);
  if (magnitude > 0x7f800000) return {std::uint16_t(sign | 0x7e00)};
  if (magnitude >= 0x477ff000) return {std::uint16_t(sign | 0x7c00)};  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {                                        // below 2^-14: subnormal; the addition rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;      // ulp of [0.5, 1) is 2^-24
    return {std::uint16_t(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000))};
  }
  const std::uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return {std::uint16_t(sign | ((rounded >> 13) - (112 << 10)))};
}

}  // namespace tutti
