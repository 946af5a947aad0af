// Mesh: everybody exchanges with everybody at once. One hop, and every byte crosses one wire: what a switch that keeps
// all ports busy does best, as long as n messages cost less than the hops that they save.
//
// All begin with the member after them, so that nobody is everybody's first target. The sum of a part starts with its
// owner's values and follows the ring backwards; it is added by segments, each of them from all peers before the next,
// so that no peer's stream has to hold more than is on its way.
#include "tutti/planning/collectives/phases.h"

namespace tutti {

void reduce_scatter_mesh(PlanBuilder& plan, const Members& members, const Parts& in, const Range& sum,
                         const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  if (n == 1) plan.copy(in[me], sum);
  for (int hop = 1; hop < n; ++hop) send(plan, members.at(me + hop), {in[(me + hop) % n]}, pieces);
  const auto own = segments_of(in[me], pieces.element, pieces.segment);
  const auto sums = segments_of(sum, pieces.element, pieces.segment);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (int hop = 1; hop < n; ++hop) plan.recv_reduce(members.at(me - hop), hop == 1 ? own[i] : sums[i], sums[i]);
  }
}

void all_gather_mesh(PlanBuilder& plan, const Members& members, const ScatteredParts& parts, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  for (int hop = 1; hop < n; ++hop) {
    send(plan, members.at(me + hop), joined(parts, me, 1), pieces);
    recv(plan, members.at(me - hop), joined(parts, me + n - hop, 1), pieces);
  }
}

void all_gather_mesh(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  for (int hop = 1; hop < n; ++hop) {
    send(plan, members.at(me + hop), {parts[me]}, pieces);
    recv(plan, members.at(me - hop), {parts[(me + n - hop) % n]}, pieces);
  }
}

}  // namespace tutti
