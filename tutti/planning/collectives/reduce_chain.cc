// A chain that ends at the root: each rank adds its own values to every segment and passes it on, so for a long vector
// all links are busy at once. The sum begins at the rank before the root and goes down in rank order.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Range reduce_chain(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum,
                   const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  const auto owns = segments_of(own, pieces.element, pieces.segment),
             sums = segments_of(sum, pieces.element, pieces.segment);
  for (std::size_t i = 0; i < owns.size(); ++i) {
    const bool end = me == n - 1;
    if (!end) plan.recv_reduce(members.at(me + 1), owns[i], sums[i]);
    if (me != 0) plan.send(members.at(me - 1), end ? owns[i] : sums[i]);
  }
  return n > 1 ? sum : own;
}

Plan reduce_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  const Members all = everybody(shape, shape.root);
  const std::size_t bytes = shape.count * shape.element;
  const bool root = all.place == 0, end = all.place == all.size() - 1;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Range sum = root ? Range{Area::kOut, 0, bytes} : end ? in : plan.scratch(bytes);
  if (all.size() == 1) plan.copy(in, sum);
  reduce_chain(plan, all, in, sum, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
