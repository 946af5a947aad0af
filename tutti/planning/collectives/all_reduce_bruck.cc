// Circulant halving, then Bruck's all-gather: the hops and the bytes of halving-doubling, for any number of ranks.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_reduce_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const std::size_t bytes = shape.count * shape.element;
  const Members all = everybody(shape);
  const Parts in = even_parts({shape.in_place ? Area::kOut : Area::kIn, 0, bytes}, shape.element, shape.size);
  const Parts out = even_parts({Area::kOut, 0, bytes}, shape.element, shape.size);
  reduce_scatter_bruck(plan, all, in, out, pieces_of(shape));
  all_gather_bruck(plan, all, out, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
