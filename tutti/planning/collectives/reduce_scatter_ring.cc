// The first half of the ring all-reduce, shifted so that rank r ends with part r: the sum of a part begins at the rank
// after its owner and ends with the owner. `in` is not ours to change, so a sum on its way lives in one of two scratch
// parts, in turn: one is being sent while the next sum is added in the other.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan reduce_scatter_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const std::size_t part = shape.count * shape.element;
  const Range out{Area::kOut, 0, part};
  const auto own = [&](int rank) { return Range{Area::kIn, ((rank + 2 * n) % n) * part, part}; };
  const auto segments = [&](const Range& range) { return segments_of(range, shape.element, shape.segment); };
  if (n == 1 && !shape.in_place) plan.copy(own(0), out);
  const Range sums[2] = {plan.scratch(n > 2 ? part : 0), plan.scratch(n > 3 ? part : 0)};
  Range sent = own(shape.rank - 1);
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Range& segment : segments(sent)) plan.send(next, segment);
    const Range sum = hop == n - 2 ? out : sums[hop % 2];
    const auto added = segments(own(shape.rank - hop - 2)), into = segments(sum);
    for (std::size_t i = 0; i < into.size(); ++i) plan.recv_reduce(previous, added[i], into[i]);
    sent = sum;
  }
  return std::move(plan).build();
}

}  // namespace tutti
