#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Members on_host(const Shape& shape) {
  TUTTI_INVARIANT(shape.hosts && shape.hosts->ranks() == shape.size, "a two-level plan must know the hosts of ",
                  shape.size, " ranks");
  return {shape.hosts->ranks_on(shape.hosts->host_of(shape.rank)), shape.hosts->place_of(shape.rank)};
}

Members entrances(const Shape& shape) {
  const Hosts& hosts = *shape.hosts;
  const int first = hosts.host_of(shape.root), count = hosts.count();
  Members members{.ranks = {}, .place = (hosts.host_of(shape.rank) - first + count) % count};
  for (int i = 0; i < count; ++i)
    members.ranks.push_back(i == 0 ? shape.root : hosts.ranks_on((first + i) % count).front());
  return members;
}

Members beginning_with(Members members, int first) {
  std::rotate(members.ranks.begin(), members.ranks.begin() + first, members.ranks.end());
  members.place = (members.place - first + members.size()) % members.size();
  return members;
}

Members carriers(const Shape& shape, int number) {
  const Hosts& hosts = *shape.hosts;
  Members members{.ranks = {}, .place = hosts.host_of(shape.rank)};
  for (int host = 0; host < hosts.count(); ++host) {
    const auto& ranks = hosts.ranks_on(host);
    members.ranks.push_back(ranks[std::size_t(carrier_of(number, hosts.fewest(), int(ranks.size())))]);
  }
  return members;
}

}  // namespace tutti
