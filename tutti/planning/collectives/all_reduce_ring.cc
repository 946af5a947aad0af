// Ring all-reduce. The vector is cut into n chunks. In hop k of the reduce-scatter each rank sends chunk (rank - k) to
// the next rank and adds its own values to chunk (rank - k - 1), which the previous rank sends: after n-1 hops rank r
// owns the sum of chunk r + 1. In the n-1 hops of the all-gather the finished chunks travel once around. Chunks are cut
// into segments, so that a segment is on its way while the next one is still being added. The sum of a chunk begins at
// the rank of the chunk's number and follows the ring.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan all_reduce_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const std::size_t bytes = shape.count * shape.element;
  const Range out{Area::kOut, 0, bytes}, in{shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  if (n == 1) {
    plan.copy(in, out);
    return std::move(plan).build();
  }
  const auto segments = [&](const Range& whole, int chunk) {
    return segments_of(part_of(whole, shape.element, n, (chunk + 2 * n) % n), shape.element, shape.segment);
  };
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Range& sent : segments(hop == 0 ? in : out, shape.rank - hop)) plan.send(next, sent);
    const auto own = segments(in, shape.rank - hop - 1), sum = segments(out, shape.rank - hop - 1);
    for (std::size_t i = 0; i < sum.size(); ++i) plan.recv_reduce(previous, own[i], sum[i]);
  }
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Range& sent : segments(out, shape.rank + 1 - hop)) plan.send(next, sent);
    for (const Range& finished : segments(out, shape.rank - hop)) plan.recv(previous, finished);
  }
  return std::move(plan).build();
}

}  // namespace tutti
