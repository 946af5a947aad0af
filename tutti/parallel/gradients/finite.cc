#include "tutti/parallel/gradients/finite.h"

#include <algorithm>

#include "tutti/comm/collectives.h"

namespace tutti {

void NonFiniteWatch::note(const Group& group, const Found& found) {
  const int rank = found.rank < 0 ? group.size() - 1 - found.rank : found.rank;
  mine_ = std::min(mine_, std::int64_t(found.parameter) * (group.size() + 2) + rank);
}

std::optional<NonFiniteWatch::Found> NonFiniteWatch::agree(const Group& group) const {
  const auto lowest = all_reduce(group, mine_, ReduceOp::kMin);
  if (lowest == kNothing) return {};
  const auto rank = int(lowest % (group.size() + 2));
  return Found{std::size_t(lowest / (group.size() + 2)), rank < group.size() ? rank : group.size() - 1 - rank};
}

}  // namespace tutti
