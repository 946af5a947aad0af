// Each rank owns an nth of the vector: it gets this part from all peers at once, adds, and sends the sum to all.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_reduce_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const std::size_t bytes = shape.count * shape.element;
  const Members all = everybody(shape);
  const Parts in = even_parts({shape.in_place ? Area::kOut : Area::kIn, 0, bytes}, shape.element, shape.size);
  const Parts out = even_parts({Area::kOut, 0, bytes}, shape.element, shape.size);
  reduce_scatter_mesh(plan, all, in, out[shape.rank], pieces_of(shape));
  all_gather_mesh(plan, all, out, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
