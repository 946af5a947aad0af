// The root sends every rank its part, all at once.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan scatter_direct(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  if (shape.rank != shape.root) {
    plan.recv(shape.root, {Area::kOut, 0, shape.count * shape.element});
    return std::move(plan).build();
  }
  const auto parts = parts_of(Area::kIn, shape, shape.in_splits);
  for (int hop = 1; hop < shape.size; ++hop) {
    const int peer = (shape.root + hop) % shape.size;
    plan.send(peer, parts[std::size_t(peer)]);
  }
  const Range own = parts[std::size_t(shape.root)];
  if (!shape.in_place) plan.copy(own, {Area::kOut, 0, own.bytes});
  return std::move(plan).build();
}

}  // namespace tutti
