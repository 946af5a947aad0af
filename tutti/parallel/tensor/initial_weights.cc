// A piece is a run of rows of the whole parameter, of about 2^18 elements, with a generator of its own, so a rank need
// not draw what it does not keep. How many rows a piece has follows from the shape of the whole alone.
#include "tutti/parallel/tensor/initial_weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/random.h"
#include "tutti/tensor/seed.h"

namespace tutti {
namespace {

constexpr std::uint64_t kPieceElements = std::uint64_t(1) << 18;

std::uint64_t rows_of_a_piece(const TensorShape& shape) {
  std::uint64_t row = 1;
  for (std::size_t d = 1; d < shape.size(); ++d) row *= shape[d];
  return std::max<std::uint64_t>(1, kPieceElements / std::max<std::uint64_t>(1, row));
}

at::Tensor draw_piece(const InitialWeights& initial, std::vector<std::int64_t> sizes, std::uint64_t piece) {
  at::Generator generator = generator_at(initial.seed, {.step = std::int64_t(piece) + 1});
  const at::Tensor drawn = at::empty(sizes, at::kFloat);
  if (initial.kind == InitialWeights::Kind::kNormal) return drawn.normal_(initial.a, initial.b, generator);
  return drawn.uniform_(initial.a, initial.b, generator);
}

// What of rows [first, first + count) is in the box, from `drawn` (those rows, whole) into `part` (the box).
void keep(const TensorBox& box, const at::Tensor& part, const at::Tensor& drawn, std::uint64_t first,
          std::uint64_t count) {
  const std::uint64_t begin = std::max(first, box.begin[0]);
  const std::uint64_t end = std::min(first + count, box.begin[0] + box.extent[0]);
  if (begin >= end) return;
  at::Tensor from = drawn.narrow(0, std::int64_t(begin - first), std::int64_t(end - begin));
  for (std::size_t d = 1; d < box.begin.size(); ++d)
    from = from.narrow(std::int64_t(d), std::int64_t(box.begin[d]), std::int64_t(box.extent[d]));
  part.narrow(0, std::int64_t(begin - box.begin[0]), std::int64_t(end - begin)).copy_(from);
}

}  // namespace

at::Tensor draw_weights(const ParameterLayout& layout, const InitialWeights& initial, at::ScalarType dtype,
                        std::int64_t local_rows) {
  const at::NoGradGuard no_grad;
  TUTTI_REQUIRE(!layout.shape.empty(), "draw_weights: a parameter without dimensions, expected one or more");
  std::vector<std::int64_t> sizes = layout.local_sizes();
  sizes[0] = std::max(sizes[0], local_rows);
  const at::Tensor local = at::zeros(sizes, dtype);
  const auto parts = pieces(layout, local);
  if (initial.kind == InitialWeights::Kind::kConstant) {
    for (const auto& [box, part] : parts) part.fill_(initial.a);
    return local;
  }
  const std::uint64_t rows = layout.shape[0], step = rows_of_a_piece(layout.shape);
  for (std::uint64_t first = 0; first < rows; first += step) {
    const std::uint64_t count = std::min(step, rows - first);
    const auto touches = [&](const auto& piece) {
      return piece.first.begin[0] < first + count && first < piece.first.begin[0] + piece.first.extent[0];
    };
    if (std::none_of(parts.begin(), parts.end(), touches)) continue;
    std::vector<std::int64_t> piece_sizes(layout.shape.begin(), layout.shape.end());
    piece_sizes[0] = std::int64_t(count);
    const at::Tensor drawn = draw_piece(initial, piece_sizes, first / step);
    for (const auto& [box, part] : parts) keep(box, part, drawn, first, count);
  }
  return local;
}

}  // namespace tutti
