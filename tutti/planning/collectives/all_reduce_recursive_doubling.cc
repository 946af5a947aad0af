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

namespace tutti {

Plan all_reduce_recursive_doubling(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRecursiveDoubling);
  const std::size_t bytes = shape.count * shape.element;
  const Range out{Area::kOut, 0, bytes}, in{shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  if (shape.size == 1) {
    plan.copy(in, out);
    return std::move(plan).build();
  }
  const int power = int(std::bit_floor(unsigned(shape.size))), folded = shape.size - power;
  const bool folds = shape.rank < 2 * folded;
  if (folds && shape.rank % 2 == 0) {
    plan.send(shape.rank + 1, in);
    plan.recv(shape.rank + 1, out);
    return std::move(plan).build();
  }
  plan.copy(in, out);
  Range mine = out, theirs = plan.scratch(bytes);
  // The peer's vector comes into `theirs`; afterwards `mine` is the sum.
  const auto add = [&](int peer) {
    plan.recv(peer, theirs);
    if (peer < shape.rank) std::swap(mine, theirs);
    plan.reduce(theirs, mine);
  };
  if (folds) add(shape.rank - 1);
  const int virtual_rank = folds ? shape.rank / 2 : shape.rank - folded;
  for (int bit = 1; bit < power; bit *= 2) {
    const int partner = virtual_rank ^ bit, peer = partner < folded ? 2 * partner + 1 : partner + folded;
    plan.send(peer, mine);
    add(peer);
  }
  plan.copy(mine, out);
  if (folds) plan.send(shape.rank - 1, out);
  return std::move(plan).build();
}

}  // namespace tutti
