#pragma once
// Who writes what: pure arithmetic over what all ranks have, alike on each of them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/checkpoint/format/manifest.h"

namespace tutti {

// A box that a rank has.
struct GivenBox {
  TensorKey key;
  DType dtype = DType::kF32;
  TensorShape shape;
  TensorBox box;
  bool may_differ = false;  // as StateBox has it
};

// As text, for the other ranks.
Result<std::string> encode_given(const std::vector<GivenBox>& boxes);
Result<std::vector<GivenBox>> decode_given(std::string_view text);

// given[r]: what rank r has. Returns, for each rank, which of its boxes it writes (numbers into given[r], rising).
// Equal boxes are replicas: one of the ranks that have it writes it, the one that has the fewest bytes to write so far;
// or the first of them, where they may differ.
// Empty boxes are written by nobody, unless the tensor has no elements. kMismatch: dtypes or shapes differ between
// ranks; kInvalidArgument: boxes overlap or leave a gap; both name the tensor, and the ranks where they matter.
Result<std::vector<std::vector<std::size_t>>> plan_save(const std::vector<std::vector<GivenBox>>& given);

}  // namespace tutti
