#pragma once
// The element types of buffers.
#include <cstddef>
#include <cstdint>

namespace tutti {

// A complex number is two consecutive real numbers, as in std::complex.
enum class DType : std::uint8_t { kF32, kF64, kF16, kBF16, kI8, kU8, kI32, kI64, kBool, kC64, kC128 };

inline constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16,  DType::kBF16, DType::kI8,  DType::kU8,
                                    DType::kI32, DType::kI64, DType::kBool, DType::kC64,  DType::kC128};

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kC128:
      return 16;
    case DType::kF64:
    case DType::kI64:
    case DType::kC64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

constexpr bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

// "f32", "bf16", "bool", ...
const char* name(DType dtype);

}  // namespace tutti
