// Reduce-scatter, then gather: broadcast_van_de_geijn backwards. Each rank adds one nth of the vector, so the adding is
// shared out, and a binomial tree takes the parts to the root.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan reduce_van_de_geijn(const Shape& shape) {
  PlanBuilder plan(Algorithm::kVanDeGeijn);
  const std::size_t bytes = shape.count * shape.element;
  const bool root = shape.rank == shape.root;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Range sum = root ? Range{Area::kOut, 0, bytes} : plan.scratch(bytes);
  const Members all = everybody(shape, shape.root);
  const Parts sums = even_parts(sum, shape.element, shape.size);
  reduce_scatter_bruck(plan, all, even_parts(in, shape.element, shape.size), sums, pieces_of(shape));
  gather_binomial(plan, all, sums, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
