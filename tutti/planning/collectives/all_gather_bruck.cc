// Bruck's concatenation: in each round a rank doubles the number of parts it has.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_gather_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const Parts parts = parts_of(Area::kOut, shape, shape.out_splits);
  if (!shape.in_place) plan.copy({Area::kIn, 0, parts[shape.rank].bytes}, parts[shape.rank]);
  all_gather_bruck(plan, everybody(shape), parts, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
