// All-reduce algorithms that exchange with ranks at power-of-two distances.
#include <algorithm>
#include <bit>
#include <utility>

#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti::comm {

// Recursive doubling: in round k the ranks whose numbers differ in bit k exchange their sums so far. If n is not a
// power of two, let p be the largest power of two below n. The first 2 * (n - p) ranks then pair up beforehand. The
// even rank of a pair sends its vector to the odd one, skips the rounds, and receives the result.
//
// Both ranks of an exchange must compute the same bits, even where an operation is not quite commutative (NaNs). So the
// left operand is always the vector of the rank with the lower number. The sum so far is in one of two buffers, `mine`
// and `theirs`, which swap names when the received vector is the left operand.
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
  // Receives the peer's vector into `theirs`. Afterwards `mine` is the sum.
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

// Recursive halving and doubling [Rabenseifner 2004]. Halving: in round k the ranks whose numbers differ in bit k split
// the stretch that both still hold. Each sends the half that its peer keeps, and adds the received half to its own.
// After log2 n rounds every rank owns the sum of one nth of the vector. Doubling runs the rounds backwards: partners
// exchange the parts that they own until every rank has all of them. The nearest partners exchange the longest
// stretches, because ranks with adjacent numbers are likely to be close in the network.
//
// If n is not a power of two, the first 2 * (n - p) ranks pair up beforehand as in recursive doubling. That transfers
// the vector twice more. `bruck` avoids this cost.
Plan all_reduce_halving_doubling(const Shape& shape) {
  PlanBuilder plan(Algorithm::kHalvingDoubling);
  const Pieces pieces = pieces_of(shape);
  const std::size_t bytes = shape.count * shape.element;
  const Range out{Area::kOut, 0, bytes}, in{shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const int power = int(std::bit_floor(unsigned(shape.size))), folded = shape.size - power;
  const bool folds = shape.rank < 2 * folded;
  if (folds && shape.rank % 2 == 0) {
    send(plan, shape.rank + 1, {in}, pieces);
    recv(plan, shape.rank + 1, {out}, pieces);
    return std::move(plan).build();
  }
  if (shape.size == 1) plan.copy(in, out);
  Range so_far = in;  // where this rank's partial sums are
  if (folds) {
    recv_reduce(plan, shape.rank - 1, in, out, pieces);
    so_far = out;
  }
  const int virtual_rank = folds ? shape.rank / 2 : shape.rank - folded;
  const auto peer_at = [&](int bit) {
    const int partner = virtual_rank ^ bit;
    return partner < folded ? 2 * partner + 1 : partner + folded;
  };
  // Parts are numbered 0 to p - 1. A stretch is `count` consecutive parts, starting with `first`.
  const auto stretch = [&](const Range& whole, int first, int count) {
    const Range begin = part_of(whole, shape.element, power, first);
    const Range last = part_of(whole, shape.element, power, first + count - 1);
    return Range{whole.area, begin.offset, last.offset + last.bytes - begin.offset};
  };
  int first = 0, count = power;
  for (int bit = 1; bit < power; bit *= 2) {
    count /= 2;
    const int upper = first + count, keeps = virtual_rank & bit ? upper : first,
              gives = virtual_rank & bit ? first : upper;
    send(plan, peer_at(bit), {stretch(so_far, gives, count)}, pieces);
    recv_reduce(plan, peer_at(bit), stretch(so_far, keeps, count), stretch(out, keeps, count), pieces);
    first = keeps;
    so_far = out;
  }
  for (int bit = power / 2; bit > 0; bit /= 2) {
    const int theirs = virtual_rank & bit ? first - count : first + count;
    send(plan, peer_at(bit), {stretch(out, first, count)}, pieces);
    recv(plan, peer_at(bit), {stretch(out, theirs, count)}, pieces);
    first = std::min(first, theirs);
    count *= 2;
  }
  if (folds) send(plan, shape.rank - 1, {out}, pieces);
  return std::move(plan).build();
}

}  // namespace tutti::comm
