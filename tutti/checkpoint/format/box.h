#pragma once
// A box of a tensor: a range in each of its dimensions, row-major. Dimension 0 is that of the rows.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

using TensorShape = std::vector<std::uint64_t>;

struct TensorBox {
  TensorShape begin, extent;  // as many numbers as the tensor has dimensions

  static TensorBox whole(const TensorShape& shape) { return {TensorShape(shape.size(), 0), shape}; }
  // Rows [first, first + count), all columns.
  static TensorBox rows(const TensorShape& shape, std::uint64_t first, std::uint64_t count);
  bool operator==(const TensorBox&) const = default;

  std::uint64_t elements() const;                                 // the product of the extents: 1 without dimensions
  std::uint64_t row_count() const;                                // 1 without dimensions
  std::uint64_t row_elements() const;                             // of one row: 1 with fewer than two dimensions
  bool inside(const TensorShape& shape) const;                    // as many dimensions, and nothing sticks out
  bool overlaps(const TensorBox& other) const;                    // of boxes that are not empty
  std::optional<TensorBox> common(const TensorBox& other) const;  // none: they have no element in common
};

// "[1000, 64]"
std::string shape_text(const TensorShape& shape);
// "[0:1000, 32:64]"
std::string box_text(const TensorBox& box);
// None where the product does not fit in 64 bits.
std::optional<std::uint64_t> elements_of(const TensorShape& shape);

// What of a tensor of this shape the boxes leave free, or have twice, as a clause; empty: each element is in one box.
// At most kMostBoxes boxes, all inside.
inline constexpr std::size_t kMostBoxes = std::size_t(1) << 14;
std::string gap_or_overlap(const TensorShape& shape, std::span<const TensorBox> boxes);

}  // namespace tutti
