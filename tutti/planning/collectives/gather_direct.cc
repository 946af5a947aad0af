// Every rank sends its part to the root, which takes them as they come.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan gather_direct(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const std::size_t part = shape.count * shape.element;
  if (shape.rank != shape.root) {
    plan.send(shape.root, {Area::kIn, 0, part});
    return std::move(plan).build();
  }
  for (int hop = 1; hop < shape.size; ++hop) {
    const int peer = (shape.root + hop) % shape.size;
    plan.recv(peer, {Area::kOut, peer * part, part});
  }
  if (!shape.in_place) plan.copy({Area::kIn, 0, part}, {Area::kOut, shape.root * part, part});
  return std::move(plan).build();
}

}  // namespace tutti
