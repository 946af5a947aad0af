// A chain that begins at the root: each rank passes every segment on as soon as it has it, so for a long vector all
// links are busy at once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

void broadcast_chain(PlanBuilder& plan, const Members& members, const Range& vector, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  for (const Range& segment : segments_of(vector, pieces.element, pieces.segment)) {
    if (me > 0) plan.recv(members.at(me - 1), segment);
    if (me < n - 1) plan.send(members.at(me + 1), segment);
  }
}

Plan broadcast_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  broadcast_chain(plan, everybody(shape, shape.root), {Area::kOut, 0, shape.count * shape.element}, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
