// A chain that begins at the root: each rank passes every segment on as soon as it has it, so for a long vector all
// links are busy at once.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan broadcast_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  const int n = shape.size, relative = (shape.rank - shape.root + n) % n;
  const Range out{Area::kOut, 0, shape.count * shape.element};
  for (const Range& segment : segments_of(out, shape.element, shape.segment)) {
    if (relative > 0) plan.recv((shape.rank + n - 1) % n, segment);
    if (relative < n - 1) plan.send((shape.rank + 1) % n, segment);
  }
  return std::move(plan).build();
}

}  // namespace tutti
