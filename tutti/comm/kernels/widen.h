#pragma once
// Converts 16-bit floats to f32 and back, for sums that run in f32 and are rounded once.
#include <cstddef>

#include "tutti/base/dtype.h"

namespace tutti::comm {

constexpr bool is_16_bit_float(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
void widen(DType from_dtype, const void* from, float* to, std::size_t count);
void narrow(DType to_dtype, const float* from, void* to, std::size_t count);

}  // namespace tutti::comm
