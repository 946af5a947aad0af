// The bounds count bytes. Regard each host as one party: the bytes that its ranks send to other hosts pass its cards.
// In an all-reduce among h parties of s bytes some party sends 2 (h-1)/h s [Patarasuk, Yuan 2009]. In a reduce or
// broadcast each party other than the root's sends or receives s. In the other collectives a party receives, or sends,
// all parts but its own. The same bounds hold with single ranks as parties; their bytes may use the port and the cards
// at once.
#include "tutti/comm/plans/simulator/bound.h"

#include <algorithm>

namespace tutti::comm {
namespace {

// Bytes in one direction that the busiest party must pass. `parties` holds the ranks of each party.
double busiest(Kind kind, const Shape& shape, const std::vector<int>& parties, int roots_party) {
  const double part = double(shape.count) * double(shape.element), n = shape.size;
  const double all = double(parties.size());
  const bool gives = gives_parts(kind), gets = gets_parts(kind);
  if (parties.size() < 2 || verb(kind).combine == Verb::Combine::kNothing || is_point_to_point(kind)) return 0;
  if (!gives && !gets) return has_root(kind) || is_scan(kind) ? part : 2 * (all - 1) / all * part;
  double most = 0;
  for (std::size_t p = 0; p < parties.size(); ++p) {
    const double own = parties[p], others = n - own;
    if (!has_root(kind) || int(p) == roots_party) most = std::max(most, (gives && gets ? own : 1) * others * part);
  }
  return most;
}

}  // namespace

Bound bound_of(Kind kind, const Shape& shape, const Network& network) {
  if (shape.size < 2) return {};
  const Hosts each = Hosts::of_sizes(std::vector<int>(std::size_t(shape.size), 1));
  const Hosts& hosts = shape.hosts ? *shape.hosts : each;
  std::vector<int> sizes;
  for (int host = 0; host < hosts.count(); ++host) sizes.push_back(int(hosts.ranks_on(host).size()));
  const double cards = network.between.bandwidth * network.cards;
  const double rank =
      (hosts.most() > 1 ? network.inside.bandwidth : 0) + (hosts.count() > 1 ? network.between.bandwidth : 0);
  const Bound of_card{network.between.latency, busiest(kind, shape, sizes, hosts.host_of(shape.root)) / cards};
  // The first bytes of a rank may come from its own host.
  const Bound of_rank{hosts.most() > 1 ? network.inside.latency : network.between.latency,
                      busiest(kind, shape, std::vector<int>(std::size_t(shape.size), 1), shape.root) / rank};
  return hosts.count() > 1 && of_card.seconds() >= of_rank.seconds() ? of_card : of_rank;
}

}  // namespace tutti::comm
