// In round k each rank sends to the rank k after it and receives from the rank k before it, so that no rank is
// everybody's target at once. The rounds overlap: their bytes do not conflict. In place, what is sent is copied aside
// first, for the parts that arrive take its place.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan all_to_all_pairwise(const Shape& shape) {
  PlanBuilder plan(Algorithm::kPairwise);
  const int n = shape.size;
  auto in = parts_of(Area::kIn, shape, shape.in_splits);
  const auto out = parts_of(Area::kOut, shape, shape.out_splits);
  if (shape.in_place) {
    const std::size_t bytes = in.back().offset + in.back().bytes;
    const Range aside = plan.scratch(bytes);
    plan.copy({Area::kOut, 0, bytes}, aside);
    for (Range& range : in) range = {aside.area, aside.offset + range.offset, range.bytes};
  }
  for (int hop = 1; hop < n; ++hop) {
    const int to = (shape.rank + hop) % n, from = (shape.rank + n - hop) % n;
    plan.send(to, in[to]);
    plan.recv(from, out[from]);
  }
  plan.copy(in[shape.rank], out[shape.rank]);
  return std::move(plan).build();
}

}  // namespace tutti
