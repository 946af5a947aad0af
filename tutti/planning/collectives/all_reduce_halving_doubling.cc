// Recursive halving and doubling [Rabenseifner 2004]. Halving: in round k the ranks whose numbers differ in bit k split
// the stretch that both still hold; each gives away the half that the other keeps and adds what comes to its own. After
// log2 n rounds every rank owns the sum of one nth. Doubling runs the rounds backwards: partners exchange what they own
// until everybody has all. The nearest partners exchange the longest stretches, and ranks of neighbouring numbers are
// likely to be near.
//
// With n not a power of two, the first 2 * (n - p) ranks (p the largest power of two) pair up beforehand as in
// recursive doubling; this costs the vector twice more. `bruck` does without.
#include <algorithm>
#include <bit>

#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

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
  // Parts are numbered 0 to p - 1; a stretch is `count` of them from `first` on.
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

}  // namespace tutti
