// Every rank sends its part to every other, all at once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_gather_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const std::size_t part = shape.count * shape.element;
  const Parts parts = blocks(Area::kOut, part, shape.size);
  if (!shape.in_place) plan.copy({Area::kIn, 0, part}, parts[shape.rank]);
  all_gather_mesh(plan, everybody(shape), parts, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
