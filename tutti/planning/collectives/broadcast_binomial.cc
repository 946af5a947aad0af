// Binomial tree, in ranks relative to the root: rank r gets the vector from r without its lowest set bit, and passes it
// on to r + b for every power of two b below that bit, the farthest first, because the largest subtree hangs there.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan broadcast_binomial(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  const int n = shape.size, relative = (shape.rank - shape.root + n) % n;
  const Range out{Area::kOut, 0, shape.count * shape.element};
  int bit = 1;
  while (bit < n && (relative & bit) == 0) bit *= 2;
  if (relative != 0) plan.recv((relative - bit + shape.root) % n, out);
  for (bit /= 2; bit > 0; bit /= 2) {
    if (relative + bit < n) plan.send((relative + bit + shape.root) % n, out);
  }
  return std::move(plan).build();
}

}  // namespace tutti
