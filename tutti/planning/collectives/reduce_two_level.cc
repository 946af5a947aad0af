// Each host reduces to one of its ranks, on the root's host to the root, and these reduce to the root: the vector
// crosses each wire once. A short vector takes binomial trees, a long one chains, whose segments flow through both
// levels at once: broadcast_two_level backwards.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {
namespace {

constexpr std::size_t kLongReduce = 256 << 10;

}  // namespace

Plan reduce_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Members between = entrances(shape);
  Members inside = on_host(shape);
  inside = beginning_with(std::move(inside), shape.hosts->place_of(between.ranks[std::size_t(between.place)]));
  const std::size_t bytes = shape.count * shape.element;
  const bool root = shape.rank == shape.root, is_long = bytes >= kLongReduce;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Range sum = root ? Range{Area::kOut, 0, bytes} : plan.scratch(bytes);
  if (shape.size == 1) plan.copy(in, sum);
  const auto reduce = [&](const Members& members, const Range& own) {
    return is_long ? reduce_chain(plan, members, own, sum, pieces_of(shape))
                   : reduce_binomial(plan, members, own, sum, pieces_of(shape));
  };
  const Range of_host = reduce(inside, in);
  if (inside.place == 0) reduce(between, of_host);
  return std::move(plan).build();
}

}  // namespace tutti
