// The root sends every rank its part, all at once.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan scatter_direct(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const std::size_t part = shape.count * shape.element;
  if (shape.rank != shape.root) {
    plan.recv(shape.root, {Area::kOut, 0, part});
    return std::move(plan).build();
  }
  for (int hop = 1; hop < shape.size; ++hop) {
    const int peer = (shape.root + hop) % shape.size;
    plan.send(peer, {Area::kIn, peer * part, part});
  }
  if (!shape.in_place) plan.copy({Area::kIn, shape.root * part, part}, {Area::kOut, 0, part});
  return std::move(plan).build();
}

}  // namespace tutti
