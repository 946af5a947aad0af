// Every rank gets its part from all peers at once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan reduce_scatter_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const Parts in = parts_of(Area::kIn, shape, shape.in_splits);
  reduce_scatter_mesh(plan, everybody(shape), in, {Area::kOut, 0, in[shape.rank].bytes}, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
