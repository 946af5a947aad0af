// Broadcast and reduce along binomial trees and chains, and van de Geijn's algorithms over a binomial tree.
#include <algorithm>

#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti::comm {

// Binomial tree, in places relative to the root. Place p receives the vector from place p without its lowest set bit b.
// It passes the vector on to p + b' for every power of two b' below b, the largest first, because that subtree is
// largest.
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

// The binomial tree of broadcast_binomial, from the leaves to the root, in places relative to the root. Place p adds
// the sums of p + 1, p + 2, p + 4 ... up to its lowest set bit, then sends its sum to p without that bit. The additions
// are in relative rank order. The vector is cut into segments, so that a parent adds one segment while the next is in
// flight.
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
  // Inner ranks add in scratch memory: only the root has an `out`, and the plan must not change `in`.
  const Range sum = root ? Range{Area::kOut, 0, bytes} : leaf ? in : plan.scratch(bytes);
  if (root && all.size() == 1) plan.copy(in, sum);
  reduce_binomial(plan, all, in, sum, pieces_of(shape));
  return std::move(plan).build();
}

// A chain that starts at the root. Each rank passes on every segment as soon as it arrives, so a long vector keeps all
// links busy at once.
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

// A chain that ends at the root. Each rank adds its own values to every segment and passes the segment on, so a long
// vector keeps all links busy at once. The sum starts at the rank before the root and follows descending rank order.
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

// Binomial trees over parts. Member p with the lowest set bit b is responsible for the members p to p + b - 1. For the
// root, b is the smallest power of two that is at least n. In a scatter a member receives all their parts from member p
// - b. It repeatedly passes on the upper half of the parts that it holds. A gather runs the same messages backwards.

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

// Scatter, then all-gather [Barnett et al. 1994; Chan et al. 2007]. The root distributes one nth to each rank through a
// binomial tree, and all ranks exchange their parts. This takes twice the vector over the root's link, but only 2 log2
// n hops for any n. It suits vectors too long for the binomial tree and too short for a chain of n hops.
Plan broadcast_van_de_geijn(const Shape& shape) {
  PlanBuilder plan(Algorithm::kVanDeGeijn);
  const Members all = everybody(shape, shape.root);
  const Parts parts = even_parts({Area::kOut, 0, shape.count * shape.element}, shape.element, shape.size);
  scatter_binomial(plan, all, parts, pieces_of(shape));
  all_gather_bruck(plan, all, parts, pieces_of(shape));
  return std::move(plan).build();
}

// Reduce-scatter, then gather: broadcast_van_de_geijn backwards. Each rank adds one nth of the vector, so the work of
// adding is shared. A binomial tree gathers the parts at the root.
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

}  // namespace tutti::comm
