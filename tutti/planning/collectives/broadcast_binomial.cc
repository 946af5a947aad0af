// Binomial tree, in places relative to the root: place p gets the vector from p without its lowest set bit, and passes
// it on to p + b for every power of two b below that bit, the farthest first, because the largest subtree hangs there.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

void broadcast_binomial(PlanBuilder& plan, const Members& members, const Range& vector) {
  const int n = members.size(), me = members.place;
  int bit = 1;
  while (bit < n && (me & bit) == 0) bit *= 2;
  if (me != 0) plan.recv(members.at(me - bit), vector);
  for (bit /= 2; bit > 0; bit /= 2) {
    if (me + bit < n) plan.send(members.at(me + bit), vector);
  }
}

Plan broadcast_binomial(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  broadcast_binomial(plan, everybody(shape, shape.root), {Area::kOut, 0, shape.count * shape.element});
  return std::move(plan).build();
}

}  // namespace tutti
