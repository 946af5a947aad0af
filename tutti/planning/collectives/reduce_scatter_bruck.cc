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
  const std::size_t part = shape.count * shape.element;
  // Partial sums exist of the parts at most this far behind the own one.
  const int farthest = std::min(int(std::bit_ceil(unsigned(n))) / 2, n) - 1;
  const Range partial = plan.scratch(std::size_t(std::max(farthest, 0)) * part);
  Parts sums(std::size_t(n), Range{Area::kScratch, 0, part});
  sums[shape.rank] = {Area::kOut, 0, part};
  for (int i = 1; i <= farthest; ++i)
    sums[(shape.rank + i) % n] = {Area::kScratch, partial.offset + std::size_t(i - 1) * part, part};
  reduce_scatter_bruck(plan, everybody(shape), blocks(Area::kIn, part, n), sums, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
