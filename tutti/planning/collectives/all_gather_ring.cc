// Every rank's part, equal or not, travels once around the ring, by segment: n-1 hops, each link carries n-1 parts.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan all_gather_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const auto parts = parts_of(Area::kOut, shape, shape.out_splits);
  const auto part_from = [&](int rank) { return parts[std::size_t((rank + n) % n)]; };
  const Range own = part_from(shape.rank);
  if (!shape.in_place) plan.copy({Area::kIn, 0, own.bytes}, own);
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Range& sent : segments_of(part_from(shape.rank - hop), shape.element, shape.segment))
      plan.send(next, sent);
    for (const Range& come : segments_of(part_from(shape.rank - hop - 1), shape.element, shape.segment))
      plan.recv(previous, come);
  }
  return std::move(plan).build();
}

}  // namespace tutti
