// The binomial tree of broadcast_binomial, upwards, in ranks relative to the root: rank r adds the sums of r + 1, r +
// 2, r + 4 ... as long as r has no such bit, then gives its own to r without its lowest set bit. The order of the sum
// is relative rank order. Cut into segments, so that a parent adds one while the next is on its way.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan reduce_binomial(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  const int n = shape.size, relative = (shape.rank - shape.root + n) % n;
  const std::size_t bytes = shape.count * shape.element;
  const bool root = relative == 0, leaf = relative % 2 == 1 || relative + 1 >= n;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  // Inner ranks add in scratch memory: `out` belongs to the root, `in` is not ours to change.
  const Range sum = root ? Range{Area::kOut, 0, bytes} : leaf ? in : plan.scratch(bytes);
  if (root && n == 1) plan.copy(in, sum);
  const auto own = segments_of(in, shape.element, shape.segment), sums = segments_of(sum, shape.element, shape.segment);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    Range so_far = own[i];
    int bit = 1;
    for (; bit < n && (relative & bit) == 0; bit *= 2) {
      if (relative + bit >= n) continue;
      plan.recv_reduce((relative + bit + shape.root) % n, so_far, sums[i]);
      so_far = sums[i];
    }
    if (!root) plan.send((relative - bit + shape.root) % n, so_far);
  }
  return std::move(plan).build();
}

}  // namespace tutti
