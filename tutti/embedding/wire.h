#pragma once
// Rows as they are sent between hosts: unchanged; as bf16, rounded to nearest even; or as 8-bit integers with a scale
// for each row: x is sent as round(x / scale), scale = max |x| / 127, after which a row's numbers lie 0.4 % of its
// largest apart. A row that is not finite is a row of NaN at the other end of the 8-bit wire.
#include <cstddef>
#include <cstdint>

#include "tutti/base/dtype.h"
#include "tutti/embedding/options.h"

namespace tutti {

struct Wire {
  DType dtype;  // of a unit
  std::int64_t (*row_units)(std::int64_t width);
};
template <class T>
Wire wire_of(WireFormat format);

// `rows` rows of `width` numbers, one after another, to and from the wire. Not for kExact.
template <class T>
void encode(WireFormat format, const T* from, std::int64_t rows, std::int64_t width, std::byte* to);
template <class T>
void decode(WireFormat format, const std::byte* from, std::int64_t rows, std::int64_t width, T* to);

}  // namespace tutti
