#include "tutti/models/dlrm/packed_table.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"

namespace tutti::dlrm {

PackedTable::PackedTable(std::int64_t rows, std::int64_t dim, int bits)
    : rows_(rows), dim_(dim), row_bytes_(bits == 4 ? (dim + 1) / 2 : dim), bits_(bits) {
  TUTTI_REQUIRE(bits == 4 || bits == 8, "a packed table has 4 or 8 bits, not ", bits);
  numbers_.resize(std::size_t(rows_ * row_bytes_));
  least_.resize(std::size_t(rows_));
  step_.resize(std::size_t(rows_));
}

std::size_t PackedTable::bytes() const { return numbers_.size() + 4 * (least_.size() + step_.size()); }

void PackedTable::set_rows(std::int64_t first, const at::Tensor& rows) {
  const auto real = rows.to(at::kFloat).contiguous();
  const int most = (1 << bits_) - 1;
  at::parallel_for(0, real.size(0), 256, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const float* from = real.data_ptr<float>() + i * dim_;
      const auto [low, high] = std::minmax_element(from, from + dim_);
      const auto row = std::size_t(first + i);
      const float step = std::max((*high - *low) / float(most), 1e-30f);
      least_[row] = *low;
      step_[row] = step;
      std::uint8_t* to = numbers_.data() + std::int64_t(row) * row_bytes_;
      std::fill_n(to, row_bytes_, std::uint8_t(0));
      for (std::int64_t column = 0; column < dim_; ++column) {
        const int number = std::clamp(int(std::nearbyint((from[column] - *low) / step)), 0, most);
        if (bits_ == 8) {
          to[column] = std::uint8_t(number);
        } else {
          to[column / 2] = std::uint8_t(to[column / 2] | number << (column % 2 * 4));
        }
      }
    }
  });
}

void PackedTable::add_row(std::int64_t row, float* to) const {
  const std::uint8_t* from = numbers_.data() + row * row_bytes_;
  const float least = least_[std::size_t(row)], step = step_[std::size_t(row)];
  if (bits_ == 8) {
    for (std::int64_t column = 0; column < dim_; ++column) to[column] += least + step * float(from[column]);
    return;
  }
  for (std::int64_t pair = 0; pair < dim_ / 2; ++pair) {
    to[2 * pair] += least + step * float(from[pair] & 15);
    to[2 * pair + 1] += least + step * float(from[pair] >> 4);
  }
  if (dim_ % 2 != 0) to[dim_ - 1] += least + step * float(from[dim_ / 2] & 15);
}

at::Tensor PackedTable::rows(std::int64_t first, std::int64_t count) const {
  const auto out = at::zeros({count, dim_}, at::kFloat);
  for (std::int64_t i = 0; i < count; ++i) add_row(first + i, out.data_ptr<float>() + i * dim_);
  return out;
}

at::Tensor PackedTable::pool(const LookupsView& lookups) const {
  for (auto index : lookups.indices)
    TUTTI_REQUIRE(index >= 0 && index < rows_, "there is no row ", index, " among ", rows_);
  const auto out = at::zeros({lookups.samples(), dim_}, at::kFloat);
  at::parallel_for(0, lookups.samples(), 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto sample = begin; sample < end; ++sample) {
      float* to = out.data_ptr<float>() + sample * dim_;
      for (auto i = lookups.offsets[std::size_t(sample)]; i < lookups.offsets[std::size_t(sample) + 1]; ++i)
        add_row(lookups.indices[std::size_t(i)], to);
    }
  });
  return out;
}

}  // namespace tutti::dlrm
