#include "tutti/checkpoint/format/box.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

TensorBox TensorBox::rows(const TensorShape& shape, std::uint64_t first, std::uint64_t count) {
  TensorBox box = whole(shape);
  box.begin.at(0) = first;
  box.extent.at(0) = count;
  return box;
}

std::uint64_t TensorBox::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t size : extent) product *= size;
  return product;
}

std::uint64_t TensorBox::row_count() const { return extent.empty() ? 1 : extent[0]; }

std::uint64_t TensorBox::row_elements() const {
  std::uint64_t product = 1;
  for (std::size_t d = 1; d < extent.size(); ++d) product *= extent[d];
  return product;
}

bool TensorBox::inside(const TensorShape& shape) const {
  if (begin.size() != shape.size() || extent.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (begin[d] > shape[d] || extent[d] > shape[d] - begin[d]) return false;
  return true;
}

std::optional<TensorBox> TensorBox::common(const TensorBox& other) const {
  TensorBox both = *this;
  for (std::size_t d = 0; d < begin.size(); ++d) {
    const std::uint64_t end = std::min(begin[d] + extent[d], other.begin[d] + other.extent[d]);
    both.begin[d] = std::max(begin[d], other.begin[d]);
    if (both.begin[d] >= end) return {};
    both.extent[d] = end - both.begin[d];
  }
  return both;
}

bool TensorBox::overlaps(const TensorBox& other) const {
  for (std::size_t d = 0; d < begin.size(); ++d)
    if (begin[d] + extent[d] <= other.begin[d] || other.begin[d] + other.extent[d] <= begin[d]) return false;
  return true;
}

std::string shape_text(const TensorShape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string box_text(const TensorBox& box) {
  std::string out;
  for (std::size_t d = 0; d < box.begin.size(); ++d)
    out += fmt::format("{}{}:{}", d > 0 ? ", " : "", box.begin[d], box.begin[d] + box.extent[d]);
  return "[" + out + "]";
}

std::optional<std::uint64_t> elements_of(const TensorShape& shape) {
  std::uint64_t product = 1;
  for (const std::uint64_t size : shape)
    if (__builtin_mul_overflow(product, size, &product)) return {};
  return product;
}

// Boxes that do not overlap cover the tensor if they have as many elements as it has. Overlaps are looked for among
// boxes in the order of their rows: each is compared with those before it that reach into its rows.
std::string gap_or_overlap(const TensorShape& shape, std::span<const TensorBox> boxes) {
  std::vector<const TensorBox*> order;
  std::uint64_t elements = 0;
  for (const TensorBox& box : boxes) {
    if (box.elements() == 0) continue;
    order.push_back(&box);
    elements += box.elements();
  }
  if (shape.empty()) return order.size() == 1 ? "" : order.empty() ? "no part has it" : "it is there twice";
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  std::vector<const TensorBox*> open;
  for (const TensorBox* box : order) {
    std::erase_if(open, [&](auto* before) { return before->begin[0] + before->extent[0] <= box->begin[0]; });
    for (const TensorBox* before : open)
      if (before->overlaps(*box)) return fmt::format("the boxes {} and {} overlap", box_text(*before), box_text(*box));
    open.push_back(box);
  }
  const std::uint64_t wanted = elements_of(shape).value_or(0);
  if (elements == wanted) return "";
  return fmt::format("the boxes have {} of its {} elements: {}", elements, wanted,
                     order.empty() ? "there are none"
                                   : "the first is " + box_text(*order[0]) + ", the last " + box_text(*order.back()));
}

}  // namespace tutti
