// Recursive doubling: in round k the ranks whose numbers differ in bit k exchange all that they have added so far. With
// n not a power of two, the first 2 * (n - p) ranks (p the largest power of two) pair up beforehand: the even one gives
// its vector to the odd one, sits the rounds out, and gets the result.
//
// Both sides of an exchange must compute the same bits, also where an operation is not quite commutative (NaNs): the
// vector of the lower half is always the left operand. So the sum so far lives in one of two places, `mine` and
// `theirs`, which change names when the received vector is the left operand.
#include <bit>
#include <utility>

#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

void all_reduce_doubling(PlanBuilder& plan, const Members& members, const Range& in, const Range& out) {
  const int n = members.size(), me = members.place;
  const int power = int(std::bit_floor(unsigned(n))), folded = n - power;
  const bool folds = me < 2 * folded;
  if (folds && me % 2 == 0) {
    plan.send(members.at(me + 1), in);
    plan.recv(members.at(me + 1), out);
    return;
  }
  plan.copy(in, out);
  if (n == 1) return;
  Range mine = out, theirs = plan.scratch(out.bytes);
  // The peer's vector comes into `theirs`; afterwards `mine` is the sum.
  const auto add = [&](int peer) {
    plan.recv(members.at(peer), theirs);
    if (peer < me) std::swap(mine, theirs);
    plan.reduce(theirs, mine);
  };
  if (folds) add(me - 1);
  const int virtual_place = folds ? me / 2 : me - folded;
  for (int bit = 1; bit < power; bit *= 2) {
    const int partner = virtual_place ^ bit, peer = partner < folded ? 2 * partner + 1 : partner + folded;
    plan.send(members.at(peer), mine);
    add(peer);
  }
  plan.copy(mine, out);
  if (folds) plan.send(members.at(me - 1), out);
}

Plan all_reduce_recursive_doubling(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRecursiveDoubling);
  const std::size_t bytes = shape.count * shape.element;
  all_reduce_doubling(plan, everybody(shape), {shape.in_place ? Area::kOut : Area::kIn, 0, bytes},
                      {Area::kOut, 0, bytes});
  return std::move(plan).build();
}

}  // namespace tutti
