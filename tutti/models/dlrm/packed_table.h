#pragma once
// An embedding table for inference whose rows have 4 or 8 bits a number, with a scale and a least value each: an eighth
// or a quarter of the memory. One process.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tutti/embedding/lookups.h"

namespace tutti::dlrm {

class PackedTable {
 public:
  PackedTable(std::int64_t rows, std::int64_t dim, int bits);

  // Rows [n, dim] of any floating type, from `first` on, each rounded to 2^bits steps between its least and its
  // largest.
  void set_rows(std::int64_t first, const at::Tensor& rows);
  at::Tensor rows(std::int64_t first, std::int64_t count) const;  // f32
  // f32 [samples, dim]: the sums of the bags. kInvalidArgument: an index outside.
  at::Tensor pool(const LookupsView& lookups) const;

  std::int64_t dim() const { return dim_; }
  std::size_t bytes() const;

 private:
  void add_row(std::int64_t row, float* to) const;

  std::int64_t rows_, dim_, row_bytes_;
  int bits_;
  std::vector<std::uint8_t> numbers_;
  std::vector<float> least_, step_;  // by row
};

}  // namespace tutti::dlrm
