// Bruck's circulant exchanges, for any number of members n [Bruck, Ho, Kipnis, Upfal, Weathersby 1997].
//
// All-gather: before the round of distance d = 1, 2, 4 ... a member has the d parts from its own on (counted round). It
// sends them to the member d before it and gets as many from the member d after it; in the last round only what is
// missing. Every part reaches every member once: ceil(log2 n) rounds, n-1 parts each way, whatever n is.
//
// Reduce-scatter is the same film run backwards [Träff 2024]: with the largest distance first a member gives away its
// partial sums of the parts from d on, to the member d after it, and adds those that come to its own. The sum of a part
// is a tree over the members relative to its owner, the same for every part: a fixed order.
//
// Parts stay where they are in the vector, so nothing is rotated in the end; a round's parts are one range, or two
// where they go round the end.
#include <algorithm>
#include <bit>

#include "tutti/planning/collectives/phases.h"

namespace tutti {

namespace {

template <class Each>
void gather_rounds(PlanBuilder& plan, const Members& members, const Each& parts, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  for (int distance = 1; distance < n; distance *= 2) {
    const int count = std::min(distance, n - distance);
    plan.next_round();
    send(plan, members.at(me - distance), joined(parts, me, count), pieces);
    recv(plan, members.at(me + distance), joined(parts, me + distance, count), pieces);
  }
}

}  // namespace

void all_gather_bruck(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces) {
  gather_rounds(plan, members, parts, pieces);
}
void all_gather_bruck(PlanBuilder& plan, const Members& members, const ScatteredParts& parts, const Pieces& pieces) {
  gather_rounds(plan, members, parts, pieces);
}

void reduce_scatter_bruck(PlanBuilder& plan, const Members& members, const Parts& in, const Parts& sums,
                          const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  if (n == 1) return plan.copy(in[me], sums[me]);
  Parts so_far = in;  // where a part's partial sum is
  for (int distance = int(std::bit_ceil(unsigned(n))) / 2; distance > 0; distance /= 2) {
    const int count = std::min(distance, n - distance);
    plan.next_round();
    send(plan, members.at(me + distance), joined(so_far, me + distance, count), pieces);
    // Runs of parts that lie side by side in both places are added as one.
    for (int i = 0; i < count;) {
      Range from = so_far[(me + i) % n], into = sums[(me + i) % n];
      const auto follows = [](const Range& a, const Range& b) {
        return a.area == b.area && a.offset + a.bytes == b.offset;
      };
      int next = i + 1;
      for (; next < count; ++next) {
        const Range &more = so_far[(me + next) % n], &room = sums[(me + next) % n];
        if (!follows(from, more) || !follows(into, room)) break;
        from.bytes += more.bytes;
        into.bytes += room.bytes;
      }
      recv_reduce(plan, members.at(me - distance), from, into, pieces);
      for (; i < next; ++i) so_far[(me + i) % n] = sums[(me + i) % n];
    }
  }
}

}  // namespace tutti
