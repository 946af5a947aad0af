// From the root to one rank of every other host, and inside each host from there: the vector crosses each wire once. A
// short vector takes binomial trees, a long one chains, whose segments flow through both levels at once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {
namespace {

constexpr std::size_t kLongBroadcast = 256 << 10;

}  // namespace

Plan broadcast_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Members between = entrances(shape);
  Members inside = on_host(shape);
  inside = beginning_with(std::move(inside), shape.hosts->place_of(between.ranks[std::size_t(between.place)]));
  const Range out{Area::kOut, 0, shape.count * shape.element};
  const bool is_long = out.bytes >= kLongBroadcast;
  if (inside.place == 0)
    is_long ? broadcast_chain(plan, between, out, pieces_of(shape)) : broadcast_binomial(plan, between, out);
  is_long ? broadcast_chain(plan, inside, out, pieces_of(shape)) : broadcast_binomial(plan, inside, out);
  return std::move(plan).build();
}

}  // namespace tutti
