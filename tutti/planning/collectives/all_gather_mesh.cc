// Every rank sends its part to every other, all at once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_gather_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const Parts parts = parts_of(Area::kOut, shape, shape.out_splits);
  if (!shape.in_place) plan.copy({Area::kIn, 0, parts[shape.rank].bytes}, parts[shape.rank]);
  all_gather_mesh(plan, everybody(shape), parts, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
