// Every rank gets its part from all peers at once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan reduce_scatter_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const std::size_t part = shape.count * shape.element;
  reduce_scatter_mesh(plan, everybody(shape), blocks(Area::kIn, part, shape.size), {Area::kOut, 0, part},
                      pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
