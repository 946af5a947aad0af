// Bruck's concatenation: in each round a rank doubles the number of parts it has.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_gather_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const std::size_t part = shape.count * shape.element;
  const Parts parts = blocks(Area::kOut, part, shape.size);
  if (!shape.in_place) plan.copy({Area::kIn, 0, part}, parts[shape.rank]);
  all_gather_bruck(plan, everybody(shape), parts, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
