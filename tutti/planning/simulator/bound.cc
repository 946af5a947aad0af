// Counting bytes. Take a host as one party: what its ranks send to other hosts passes its cards. All-reduce among h
// parties of s bytes: some party sends 2 (h-1)/h s [Patarasuk, Yuan 2009]. Reduce and broadcast: a party that is not
// the root's sends or gets s. In the others a party gets, or gives away, the parts that are not its own. The same holds
// for single ranks as parties, whose bytes may take the port and the cards at once.
#include "tutti/planning/simulator/bound.h"

#include <algorithm>

namespace tutti {
namespace {

// Bytes one way that the busiest party must pass, of parties of these sizes (ranks).
double busiest(Kind kind, const Shape& shape, const std::vector<int>& parties, int roots_party) {
  const double part = double(shape.count) * double(shape.element), n = shape.size;
  const double all = double(parties.size());
  if (parties.size() < 2) return 0;
  double most = 0;
  for (std::size_t p = 0; p < parties.size(); ++p) {
    const double own = parties[p], others = n - own;
    switch (kind) {
      case Kind::kBarrier:
      case Kind::kSend:
      case Kind::kRecv:
        break;
      case Kind::kAllReduce:
        most = 2 * (all - 1) / all * part;
        break;
      case Kind::kBroadcast:
      case Kind::kReduce:
        most = part;
        break;
      case Kind::kAllGather:
      case Kind::kAllGatherV:
      case Kind::kReduceScatter:
      case Kind::kReduceScatterV:
        most = std::max(most, others * part);
        break;
      case Kind::kGather:
      case Kind::kGatherV:
      case Kind::kScatter:
      case Kind::kScatterV:
        if (int(p) == roots_party) most = others * part;
        break;
      case Kind::kAllToAll:
        most = std::max(most, own * others * part);
        break;
    }
  }
  return most;
}

}  // namespace

Bound bound_of(Kind kind, const Shape& shape, const Network& network) {
  Bound bound;
  if (shape.size < 2) return bound;
  const Hosts each = Hosts::of_sizes(std::vector<int>(std::size_t(shape.size), 1));
  const Hosts& hosts = shape.hosts ? *shape.hosts : each;
  std::vector<int> sizes;
  for (int host = 0; host < hosts.count(); ++host) sizes.push_back(int(hosts.ranks_on(host).size()));
  const double cards = network.between.bandwidth * network.cards;
  const double rank =
      (hosts.most() > 1 ? network.inside.bandwidth : 0) + (hosts.count() > 1 ? network.between.bandwidth : 0);
  bound.latency = hosts.count() > 1 ? network.between.latency : network.inside.latency;
  bound.bandwidth = std::max(busiest(kind, shape, sizes, hosts.host_of(shape.root)) / cards,
                             busiest(kind, shape, std::vector<int>(std::size_t(shape.size), 1), shape.root) / rank);
  return bound;
}

}  // namespace tutti
