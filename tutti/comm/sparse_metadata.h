#pragma once
// What each rank announces before it sends its part of a sparse sum: a row of kSparseMetadata numbers, which
// tensor/sparse_collectives.cc gathers from all ranks.
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti::comm {

inline constexpr std::int64_t kMostSparseDimensions = 8;
inline constexpr std::size_t kSparseMetadata = 5 + kMostSparseDimensions;
using SparseRow = std::array<std::int64_t, kSparseMetadata>;

struct SparseMetadata {
  std::int64_t entries = 0;  // different indices, each at most once
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t sparse_dimensions = 0;   // the first of the sizes
  std::span<const std::int64_t> sizes;  // of the whole tensor, kMostSparseDimensions at the most; not owned

  // The same tensor and op; the entries may differ.
  bool is_like(const SparseMetadata& other) const;
};

SparseRow to_row(const SparseMetadata& metadata);
// Parses the row of a peer; the sizes point into it. kCorrupt: the type or op is unknown, a dimension is negative,
// there are too many dimensions, or more entries than places.
Result<SparseMetadata> parse_sparse_metadata(std::span<const std::int64_t, kSparseMetadata> row);
// "f32[5, 2] with 1 sparse dimension to sum"
std::string to_string(const SparseMetadata& metadata);

}  // namespace tutti::comm
