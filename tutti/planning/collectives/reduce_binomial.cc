// The binomial tree of broadcast_binomial, upwards, in ranks relative to the root: rank r adds the sums of r + 1, r +
// 2, r + 4 ... as long as r has no such bit, then gives its own to r without its lowest set bit. The order of the sum
// is relative rank order. Cut into segments, so that a parent adds one while the next is on its way.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Range reduce_binomial(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum,
                      const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  const auto owns = segments_of(own, pieces.element, pieces.segment),
             sums = segments_of(sum, pieces.element, pieces.segment);
  for (std::size_t i = 0; i < owns.size(); ++i) {
    Range so_far = owns[i];
    int bit = 1;
    for (; bit < n && (me & bit) == 0; bit *= 2) {
      if (me + bit >= n) continue;
      plan.recv_reduce(members.at(me + bit), so_far, sums[i]);
      so_far = sums[i];
    }
    if (me != 0) plan.send(members.at(me - bit), so_far);
  }
  return n > 1 ? sum : own;
}

Plan reduce_binomial(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  const Members all = everybody(shape, shape.root);
  const std::size_t bytes = shape.count * shape.element;
  const bool root = all.place == 0, leaf = all.place % 2 == 1 || all.place + 1 >= all.size();
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  // Inner ranks add in scratch memory: `out` belongs to the root, `in` is not ours to change.
  const Range sum = root ? Range{Area::kOut, 0, bytes} : leaf ? in : plan.scratch(bytes);
  if (root && all.size() == 1) plan.copy(in, sum);
  reduce_binomial(plan, all, in, sum, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
