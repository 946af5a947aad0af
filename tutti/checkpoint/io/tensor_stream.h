#pragma once
// One tensor that is read a box after another: by rising rows each byte is looked at once, in little memory.
#include <cstddef>

#include "tutti/base/error.h"
#include "tutti/checkpoint/format/box.h"

namespace tutti {

// One thread at a time. Lives no longer than what it was made of.
class TensorStream {
 public:
  virtual ~TensorStream() = default;
  // `into`: the first element of the box; row_stride: bytes from row to row, 0: packed. On error `into` is undefined.
  virtual Status read(const TensorBox& box, std::byte* into, std::size_t row_stride = 0) = 0;
};

}  // namespace tutti
