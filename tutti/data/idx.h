#pragma once
// The IDX format of the MNIST family: two zero bytes, an element type, the number of dimensions, each dimension as a
// big-endian u32, then the elements in row-major order. Files may be gzip-compressed.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct IdxArray {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> values;  // product of the shape
};

// Reads an array of unsigned bytes. kNotFound, kSystem; kCorrupt names the file, the byte (of the uncompressed data),
// what was expected there and what was found. Memory grows with what the file holds, never with what its header claims.
Result<IdxArray> read_idx(const std::string& path);

}  // namespace tutti
