// Every rank's part travels once around the ring, by segment: n-1 hops, each link carries n-1 parts.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan all_gather_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const std::size_t part = shape.count * shape.element;
  const auto part_from = [&](int rank) { return Range{Area::kOut, ((rank + n) % n) * part, part}; };
  if (!shape.in_place) plan.copy({Area::kIn, 0, part}, part_from(shape.rank));
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Range& sent : segments_of(part_from(shape.rank - hop), shape.element, shape.segment))
      plan.send(next, sent);
    for (const Range& come : segments_of(part_from(shape.rank - hop - 1), shape.element, shape.segment))
      plan.recv(previous, come);
  }
  return std::move(plan).build();
}

}  // namespace tutti
