// Circulant halving. `in` is not ours to change: partial sums of other ranks' parts live in scratch memory, side by
// side in the order in which they are passed on, so that each round sends one range.
#include <algorithm>
#include <bit>

#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan reduce_scatter_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const int n = shape.size;
  const Parts in = parts_of(Area::kIn, shape, shape.in_splits);
  // Partial sums exist of the parts at most this far behind the own one.
  const int farthest = std::min(int(std::bit_ceil(unsigned(n))) / 2, n) - 1;
  std::size_t bytes = 0;
  Parts sums = in;
  for (int i = 1; i <= farthest; ++i) {
    Range& sum = sums[(shape.rank + i) % n];
    sum = {Area::kScratch, bytes, sum.bytes};
    bytes += sum.bytes;
  }
  plan.scratch(bytes);
  sums[shape.rank] = {Area::kOut, 0, in[shape.rank].bytes};
  reduce_scatter_bruck(plan, everybody(shape), in, sums, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
