// Broadcast and reduce along binomial trees and chains, and van de Geijn's scatter or gather over a binomial tree.
#include <algorithm>

#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti {

// Binomial tree, in places relative to the root: place p gets the vector from p without its lowest set bit, and passes
// it on to p + b for every power of two b below that bit, the farthest first, because the largest subtree hangs there.
void broadcast_binomial(PlanBuilder& plan, const Members& members, const Range& vector) {
  const int n = members.size(), me = members.place;
  int bit = 1;
  while (bit < n && (me & bit) == 0) bit *= 2;
  if (me != 0) plan.recv(members.at(me - bit), vector);
  for (bit /= 2; bit > 0; bit /= 2) {
    if (me + bit < n) plan.send(members.at(me + bit), vector);
  }
}

Plan broadcast_binomial(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  broadcast_binomial(plan, everybody(shape, shape.root), {Area::kOut, 0, shape.count * shape.element});
  return std::move(plan).build();
}

// The binomial tree of broadcast_binomial, upwards, in ranks relative to the root: rank r adds the sums of r + 1, r +
// 2, r + 4 ... as long as r has no such bit, then gives its own to r without its lowest set bit. The order of the sum
// is relative rank order. Cut into segments, so that a parent adds one while the next is on its way.
Range reduce_binomial(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum,
                      const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  const auto owns = segments_of(own, pieces.element, pieces.segment),
             sums = segments_of(sum, pieces.element, pieces.segment);
  for (std::size_t i = 0; i < owns.size(); ++i) {
    Range so_far = owns[i];
    int bit = 1;
    for (; bit < n && (me & bit) == 0; bit *= 2) {
      if (me + bit >= n) continue;
      plan.recv_reduce(members.at(me + bit), so_far, sums[i]);
      so_far = sums[i];
    }
    if (me != 0) plan.send(members.at(me - bit), so_far);
  }
  return n > 1 ? sum : own;
}

Plan reduce_binomial(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  const Members all = everybody(shape, shape.root);
  const std::size_t bytes = shape.count * shape.element;
  const bool root = all.place == 0, leaf = all.place % 2 == 1 || all.place + 1 >= all.size();
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  // Inner ranks add in scratch memory: `out` belongs to the root, `in` is not ours to change.
  const Range sum = root ? Range{Area::kOut, 0, bytes} : leaf ? in : plan.scratch(bytes);
  if (root && all.size() == 1) plan.copy(in, sum);
  reduce_binomial(plan, all, in, sum, pieces_of(shape));
  return std::move(plan).build();
}

// A chain that begins at the root: each rank passes every segment on as soon as it has it, so for a long vector all
// links are busy at once.
void broadcast_chain(PlanBuilder& plan, const Members& members, const Range& vector, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  for (const Range& segment : segments_of(vector, pieces.element, pieces.segment)) {
    if (me > 0) plan.recv(members.at(me - 1), segment);
    if (me < n - 1) plan.send(members.at(me + 1), segment);
  }
}

Plan broadcast_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  broadcast_chain(plan, everybody(shape, shape.root), {Area::kOut, 0, shape.count * shape.element}, pieces_of(shape));
  return std::move(plan).build();
}

// A chain that ends at the root: each rank adds its own values to every segment and passes it on, so for a long vector
// all links are busy at once. The sum begins at the rank before the root and goes down in rank order.
Range reduce_chain(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum,
                   const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  const auto owns = segments_of(own, pieces.element, pieces.segment),
             sums = segments_of(sum, pieces.element, pieces.segment);
  for (std::size_t i = 0; i < owns.size(); ++i) {
    const bool end = me == n - 1;
    if (!end) plan.recv_reduce(members.at(me + 1), owns[i], sums[i]);
    if (me != 0) plan.send(members.at(me - 1), end ? owns[i] : sums[i]);
  }
  return n > 1 ? sum : own;
}

Plan reduce_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  const Members all = everybody(shape, shape.root);
  const std::size_t bytes = shape.count * shape.element;
  const bool root = all.place == 0, end = all.place == all.size() - 1;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Range sum = root ? Range{Area::kOut, 0, bytes} : end ? in : plan.scratch(bytes);
  if (all.size() == 1) plan.copy(in, sum);
  reduce_chain(plan, all, in, sum, pieces_of(shape));
  return std::move(plan).build();
}

// Binomial trees over parts. Member p (its lowest set bit is b) stands for the members p to p + b - 1, and for the root
// b is the power of two above n. In a scatter it gets their parts at once from member p - b and passes on the upper
// half of what it has, again and again; a gather is the same backwards.

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

// Scatter, then all-gather [Barnett et al. 1994; Chan et al. 2007]: the root gives every rank one nth through a
// binomial tree, and all exchange their parts. Twice the vector over the root's link, but only 2 log2 n hops, whatever
// n is: for vectors too long for the binomial tree and too short for a chain of n hops.
Plan broadcast_van_de_geijn(const Shape& shape) {
  PlanBuilder plan(Algorithm::kVanDeGeijn);
  const Members all = everybody(shape, shape.root);
  const Parts parts = even_parts({Area::kOut, 0, shape.count * shape.element}, shape.element, shape.size);
  scatter_binomial(plan, all, parts, pieces_of(shape));
  all_gather_bruck(plan, all, parts, pieces_of(shape));
  return std::move(plan).build();
}

// Reduce-scatter, then gather: broadcast_van_de_geijn backwards. Each rank adds one nth of the vector, so the adding is
// shared out, and a binomial tree takes the parts to the root.
Plan reduce_van_de_geijn(const Shape& shape) {
  PlanBuilder plan(Algorithm::kVanDeGeijn);
  const std::size_t bytes = shape.count * shape.element;
  const bool root = shape.rank == shape.root;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Range sum = root ? Range{Area::kOut, 0, bytes} : plan.scratch(bytes);
  const Members all = everybody(shape, shape.root);
  const Parts sums = even_parts(sum, shape.element, shape.size);
  reduce_scatter_bruck(plan, all, even_parts(in, shape.element, shape.size), sums, pieces_of(shape));
  gather_binomial(plan, all, sums, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti
