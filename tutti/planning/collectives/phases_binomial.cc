// Binomial trees over parts. Member p (its lowest set bit is b) stands for the members p to p + b - 1, and for the root
// b is the power of two above n. In a scatter it gets their parts at once from member p - b and passes on the upper
// half of what it has, again and again; a gather is the same backwards.
#include <algorithm>

#include "tutti/planning/collectives/phases.h"

namespace tutti {
namespace {

int lowest_bit(int place, int n) {
  int bit = 1;
  while (bit < n && (place & bit) == 0) bit *= 2;
  return bit;
}

}  // namespace

void scatter_binomial(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  int bit = lowest_bit(me, n);
  if (me != 0) recv(plan, members.at(me - bit), joined(parts, me, std::min(bit, n - me)), pieces);
  for (bit /= 2; bit > 0; bit /= 2) {
    const int child = me + bit;
    if (child < n) send(plan, members.at(child), joined(parts, child, std::min(bit, n - child)), pieces);
  }
}

void gather_binomial(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces) {
  const int n = members.size(), me = members.place, own = lowest_bit(me, n);
  for (int bit = 1; bit < own; bit *= 2) {
    const int child = me + bit;
    if (child < n) recv(plan, members.at(child), joined(parts, child, std::min(bit, n - child)), pieces);
  }
  if (me != 0) send(plan, members.at(me - own), joined(parts, me, std::min(own, n - me)), pieces);
}

}  // namespace tutti
