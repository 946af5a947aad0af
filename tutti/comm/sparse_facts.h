#pragma once
// What a rank announces before its part of a sparse sum travels: a row of kSparseFacts numbers, as
// tensor/sparse_collectives.cc has all ranks gather them.
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti {

inline constexpr std::int64_t kMostSparseDimensions = 8;
inline constexpr std::size_t kSparseFacts = 5 + kMostSparseDimensions;
using SparseRow = std::array<std::int64_t, kSparseFacts>;

struct SparseFacts {
  std::int64_t entries = 0;  // different indices, each at most once
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t sparse_dimensions = 0;   // the first of the sizes
  std::span<const std::int64_t> sizes;  // of the whole tensor, at most kMostSparseDimensions; not owned

  // The same tensor and op, whatever its entries.
  bool is_like(const SparseFacts& other) const;
};

SparseRow to_row(const SparseFacts& facts);
// Of a row that a peer sent, to which the sizes point. kCorrupt: no rank could have announced it, for an unknown type
// or op, dimensions that are too many or negative, or more entries than there are places.
Result<SparseFacts> parse_sparse_facts(std::span<const std::int64_t, kSparseFacts> row);
// "f32[5, 2] with 1 sparse dimension to sum"
std::string to_string(const SparseFacts& facts);

}  // namespace tutti
