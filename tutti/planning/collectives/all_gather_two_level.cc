// Between hosts first, where every rank that can carries a share: the c carriers of a host (c the ranks of the smallest
// host) take the parts of some ranks of their host each, their own among them, and exchange them with the carriers of
// the same number on the other hosts. Then all ranks of a host exchange what they have. A host's card takes in each
// part of another host once.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_gather_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Pieces cut = pieces_of(shape);
  const Parts parts = parts_of(Area::kOut, shape, shape.out_splits);
  const Members here = on_host(shape);
  const Hosts& hosts = *shape.hosts;
  const int m = here.size(), me = here.place, c = hosts.fewest();
  if (!shape.in_place) plan.copy({Area::kIn, 0, parts[shape.rank].bytes}, parts[shape.rank]);

  // The parts of a host that one carrier takes: those of the ranks from its place up to the next carrier's.
  const auto share = [&](int host, int carrier) {
    const auto& ranks = hosts.ranks_on(host);
    const int size = int(ranks.size());
    std::vector<Range> ranges;
    for (int place = carrier_of(carrier, c, size); place < carrier_of(carrier + 1, c, size); ++place)
      ranges.push_back(parts[ranks[place]]);
    return ranges;
  };
  int mine = 0;  // the carrier that takes this rank's part
  while (carrier_of(mine + 1, c, m) <= me) ++mine;
  const int carrier = carrier_of(mine, c, m);
  if (me != carrier) {
    send(plan, here.at(carrier), {parts[shape.rank]}, cut);
  } else {
    for (int place = carrier + 1; place < carrier_of(mine + 1, c, m); ++place)
      recv(plan, here.at(place), {parts[here.at(place)]}, cut);
    ScatteredParts shares;
    for (int host = 0; host < hosts.count(); ++host) shares.push_back(share(host, mine));
    all_gather_bruck(plan, carriers(shape, mine), shares, cut);
  }

  // Inside, a carrier has its share of every other host and gives its own part as all do.
  ScatteredParts has(std::size_t(m), std::vector<Range>{});
  for (int place = 0; place < m; ++place) has[place].push_back(parts[here.at(place)]);
  for (int host = 0; host < hosts.count(); ++host) {
    if (host == hosts.host_of(shape.rank)) continue;
    for (int i = 0; i < c; ++i) {
      const std::vector<Range> ranges = share(host, i);
      std::vector<Range>& all = has[carrier_of(i, c, m)];
      all.insert(all.end(), ranges.begin(), ranges.end());
    }
  }
  all_gather_mesh(plan, here, has, cut);
  return std::move(plan).build();
}

}  // namespace tutti
