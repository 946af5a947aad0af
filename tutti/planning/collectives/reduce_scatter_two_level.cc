// all_gather_two_level backwards. The carriers of a host (as many as the smallest host has ranks) share the parts of
// all ranks out among themselves: carrier k those of the ranks that stand where carrier k stands, and up to the next
// one, on every host. The ranks of a host send each carrier what is its share, and it adds. The carriers of the same
// number on all hosts then exchange their sums, each getting those of its own host, and hand the parts to their owners.
// A host's card takes in each part of its own ranks once from every other host.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan reduce_scatter_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Pieces cut = pieces_of(shape);
  const Parts in = parts_of(Area::kIn, shape, shape.in_splits);
  const Range out{Area::kOut, 0, in[std::size_t(shape.rank)].bytes};
  const Members here = on_host(shape);
  const Hosts& hosts = *shape.hosts;
  const int m = here.size(), me = here.place, c = hosts.fewest(), my_host = hosts.host_of(shape.rank);

  // The ranks of a host whose parts one carrier takes.
  const auto share = [&](int host, int carrier) {
    const auto& ranks = hosts.ranks_on(host);
    const int size = int(ranks.size());
    return std::vector<int>(ranks.begin() + carrier_of(carrier, c, size),
                            ranks.begin() + carrier_of(carrier + 1, c, size));
  };
  int mine = 0;  // the carrier that takes this rank's part
  while (carrier_of(mine + 1, c, m) <= me) ++mine;
  const bool carries = carrier_of(mine, c, m) == me;

  for (int hop = 1; hop < m; ++hop) {
    for (int number = 0; number < c; ++number) {
      if (carrier_of(number, c, m) != (me + hop) % m) continue;
      for (int host = 0; host < hosts.count(); ++host)
        for (const int owner : share(host, number)) send(plan, here.at(me + hop), {in[std::size_t(owner)]}, cut);
    }
  }
  if (!carries) {
    recv(plan, here.at(carrier_of(mine, c, m)), {out}, cut);
    return std::move(plan).build();
  }
  // The sums of this host, where it adds any; of its own ranks they become the results.
  Parts sums = in;
  for (int host = 0; host < hosts.count(); ++host) {
    for (const int owner : share(host, mine)) {
      Range& sum = sums[std::size_t(owner)];
      if (owner == shape.rank)
        sum = out;
      else if (m > 1 || host == my_host)
        sum = plan.scratch(sum.bytes);
      Range so_far = in[std::size_t(owner)];
      for (int hop = 1; hop < m; ++hop) {
        recv_reduce(plan, here.at(me - hop), so_far, sum, cut);
        so_far = sum;
      }
    }
  }
  const Members others = carriers(shape, mine);
  for (int hop = 1; hop < others.size(); ++hop) {
    const int to = (others.place + hop) % others.size();
    for (const int owner : share(to, mine)) send(plan, others.at(to), {sums[std::size_t(owner)]}, cut);
  }
  for (const int owner : share(my_host, mine)) {
    const Range& sum = sums[std::size_t(owner)];
    for (int hop = 1; hop < others.size(); ++hop)
      recv_reduce(plan, others.at(others.place - hop), m > 1 || hop > 1 ? sum : in[std::size_t(owner)], sum, cut);
    if (m == 1 && others.size() == 1) plan.copy(in[std::size_t(owner)], sum);
    if (owner != shape.rank) send(plan, owner, {sum}, cut);
  }
  return std::move(plan).build();
}

}  // namespace tutti
