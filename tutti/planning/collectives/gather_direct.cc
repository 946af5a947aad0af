// Every rank sends its part to the root, which takes them as they come.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan gather_direct(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  if (shape.rank != shape.root) {
    plan.send(shape.root, {Area::kIn, 0, shape.count * shape.element});
    return std::move(plan).build();
  }
  const auto parts = parts_of(Area::kOut, shape, shape.out_splits);
  for (int hop = 1; hop < shape.size; ++hop) {
    const int peer = (shape.root + hop) % shape.size;
    plan.recv(peer, parts[std::size_t(peer)]);
  }
  const Range own = parts[std::size_t(shape.root)];
  if (!shape.in_place) plan.copy({Area::kIn, 0, own.bytes}, own);
  return std::move(plan).build();
}

}  // namespace tutti
