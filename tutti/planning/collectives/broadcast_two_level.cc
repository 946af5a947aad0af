// From the root to one rank of every other host, and inside each host from there: the vector crosses each wire once. A
// short vector takes binomial trees, a long one chains, whose segments flow through both levels at once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {
namespace {

constexpr std::size_t kLong = 256 << 10;

}  // namespace

Plan broadcast_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  Members between, inside = on_host(shape);
  const Hosts& hosts = *shape.hosts;
  const Range out{Area::kOut, 0, shape.count * shape.element};
  // The first rank of each host takes it in, on the root's host the root; its host, and in each host that rank, come
  // first.
  const auto takes_in = [&](int host) {
    return host == hosts.host_of(shape.root) ? shape.root : hosts.ranks_on(host).front();
  };
  for (int i = 0; i < hosts.count(); ++i)
    between.ranks.push_back(takes_in((hosts.host_of(shape.root) + i) % hosts.count()));
  between.place = (hosts.host_of(shape.rank) - hosts.host_of(shape.root) + hosts.count()) % hosts.count();
  inside = beginning_with(std::move(inside), hosts.place_of(takes_in(hosts.host_of(shape.rank))));
  const bool is_long = out.bytes >= kLong;
  if (inside.place == 0)
    is_long ? broadcast_chain(plan, between, out, pieces_of(shape)) : broadcast_binomial(plan, between, out);
  is_long ? broadcast_chain(plan, inside, out, pieces_of(shape)) : broadcast_binomial(plan, inside, out);
  return std::move(plan).build();
}

}  // namespace tutti
