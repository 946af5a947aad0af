// Scatter, then all-gather [Barnett et al. 1994; Chan et al. 2007]: the root gives every rank one nth through a
// binomial tree, and all exchange their parts. Twice the vector over the root's link, but only 2 log2 n hops, whatever
// n is: for vectors too long for the binomial tree and too short for a chain of n hops.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan broadcast_van_de_geijn(const Shape& shape) {
  PlanBuilder plan(Algorithm::kVanDeGeijn);
  const Members all = everybody(shape, shape.root);
  const Parts parts = even_parts({Area::kOut, 0, shape.count * shape.element}, shape.element, shape.size);
  scatter_binomial(plan, all, parts, pieces_of(shape));
  all_gather_bruck(plan, all, parts, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
