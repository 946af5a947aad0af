// The first half of the ring all-reduce, shifted so that rank r ends with part r: the sum of a part begins at the rank
// after its owner and ends with the owner. `in` is not ours to change, so a sum on its way lives in one of two scratch
// parts, in turn: one is being sent while the next sum is added in the other.
#include <algorithm>

#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan reduce_scatter_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const auto parts = parts_of(Area::kIn, shape, shape.in_splits);
  const auto own = [&](int rank) { return parts[std::size_t((rank + 2 * n) % n)]; };
  const Range out{Area::kOut, 0, own(shape.rank).bytes};
  const auto segments = [&](const Range& range) { return segments_of(range, shape.element, shape.segment); };
  if (n == 1 && !shape.in_place) plan.copy(own(0), out);
  std::size_t largest = 0;
  for (const Range& part : parts) largest = std::max(largest, part.bytes);
  const Range sums[2] = {plan.scratch(n > 2 ? largest : 0), plan.scratch(n > 3 ? largest : 0)};
  Range sent = own(shape.rank - 1);
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Range& segment : segments(sent)) plan.send(next, segment);
    const Range part = own(shape.rank - hop - 2);
    const Range sum = hop == n - 2 ? out : Range{Area::kScratch, sums[hop % 2].offset, part.bytes};
    const auto added = segments(part), into = segments(sum);
    for (std::size_t i = 0; i < into.size(); ++i) plan.recv_reduce(previous, added[i], into[i]);
    sent = sum;
  }
  return std::move(plan).build();
}

}  // namespace tutti
