// A chain that ends at the root: each rank adds its own values to every segment and passes it on, so for a long vector
// all links are busy at once. The sum begins at the rank before the root and goes down in rank order.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan reduce_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  const int n = shape.size, relative = (shape.rank - shape.root + n) % n;
  const std::size_t bytes = shape.count * shape.element;
  const bool root = relative == 0, end = relative == n - 1;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Range sum = root ? Range{Area::kOut, 0, bytes} : end ? in : plan.scratch(bytes);
  if (n == 1) plan.copy(in, sum);
  const auto own = segments_of(in, shape.element, shape.segment), sums = segments_of(sum, shape.element, shape.segment);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!end) plan.recv_reduce((shape.rank + 1) % n, own[i], sums[i]);
    if (!root) plan.send((shape.rank + n - 1) % n, sums[i]);
  }
  return std::move(plan).build();
}

}  // namespace tutti
