// Bruck's circulant exchanges, for any number of members n [Bruck, Ho, Kipnis, Upfal, Weathersby 1997].
//
// All-gather: before the round of distance d = 1, 2, 4 ... each member holds d parts: its own and the d-1 that follow
// it, modulo n. It sends these parts to the member d before it and receives d parts from the member d after it. The
// last round transfers only the missing parts. Every part reaches every member once: ceil(log2 n) rounds, n-1 parts
// each way, for any n.
//
// Reduce-scatter runs the same exchanges backwards, largest distance first [Träff 2024]. In the round of distance d a
// member sends its partial sums of the parts from d on to the member d after it. It adds the partial sums that it
// receives to its own. The sum of a part is a tree over the members relative to the part's owner. The tree is the same
// for every part, so the order of additions is fixed.
//
// Parts keep their positions in the vector, so no final rotation is needed. The parts of a round are one range, or two
// ranges where they wrap around the end.
#include <algorithm>
#include <bit>

#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti::comm {

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
  Parts so_far = in;  // where the partial sum of each part is
  for (int distance = int(std::bit_ceil(unsigned(n))) / 2; distance > 0; distance /= 2) {
    const int count = std::min(distance, n - distance);
    plan.next_round();
    send(plan, members.at(me + distance), joined(so_far, me + distance, count), pieces);
    // Adjacent parts whose sources and destinations are both contiguous are added as one range.
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

// Bruck's concatenation: each round doubles the number of parts that a rank has.
Plan all_gather_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const Parts parts = parts_of(Area::kOut, shape, shape.out_splits);
  if (!shape.in_place) plan.copy({Area::kIn, 0, parts[shape.rank].bytes}, parts[shape.rank]);
  all_gather_bruck(plan, everybody(shape), parts, pieces_of(shape));
  return std::move(plan).build();
}

// Circulant halving. The plan must not change `in`. Partial sums of other ranks' parts are in scratch memory, in the
// order in which they are sent, so each round sends one range.
Plan reduce_scatter_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const int n = shape.size;
  const Parts in = parts_of(Area::kIn, shape, shape.in_splits);
  // Partial sums exist only for the parts at most this far after this rank's own part.
  const int farthest = std::min(int(std::bit_ceil(unsigned(n))) / 2, n) - 1;
  std::size_t bytes = 0;
  Parts sums = in;
  for (int i = 1; i <= farthest; ++i) {
    Range& sum = sums[(shape.rank + i) % n];
    sum = {Area::kScratch, bytes, sum.bytes};
    bytes += sum.bytes;
  }
  plan.scratch(bytes);
  sums[shape.rank] = {Area::kOut, 0, in[shape.rank].bytes};
  reduce_scatter_bruck(plan, everybody(shape), in, sums, pieces_of(shape));
  return std::move(plan).build();
}

// Circulant halving, then Bruck's all-gather. Same hops and bytes as halving-doubling, but for any number of ranks.
Plan all_reduce_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const std::size_t bytes = shape.count * shape.element;
  const Members all = everybody(shape);
  const Parts in = even_parts({shape.in_place ? Area::kOut : Area::kIn, 0, bytes}, shape.element, shape.size);
  const Parts out = even_parts({Area::kOut, 0, bytes}, shape.element, shape.size);
  reduce_scatter_bruck(plan, all, in, out, pieces_of(shape));
  all_gather_bruck(plan, all, out, pieces_of(shape));
  return std::move(plan).build();
}

// Bruck's index algorithm [Bruck 1997], for small parts: ceil(log2 n) messages of half the parts each, instead of n-1
// messages of one part. A part that must move i ranks forward moves by the set bits of i. In the round of bit b every
// rank sends all parts whose distance has that bit to the rank b after it. It receives parts of the same remaining
// distances.
//
// A message must be one range, so the parts of a round are first copied side by side. Received parts stay where they
// arrived, and `where` records their positions. The output is written at the very end, because in place it overlaps the
// input.
Plan all_to_all_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const int n = shape.size;
  const std::size_t part = shape.count * shape.element;
  const Parts in = parts_of(shape.in_place ? Area::kOut : Area::kIn, shape, {}), out = parts_of(Area::kOut, shape, {});
  Parts where = rotated(in, shape.rank);  // by the total distance that a part has to move
  for (int bit = 1; bit < n; bit *= 2) {
    std::vector<int> travel;
    for (int distance = bit; distance < n; ++distance) {
      if (distance & bit) travel.push_back(distance);
    }
    const Range leaving = plan.scratch(travel.size() * part), coming = plan.scratch(travel.size() * part);
    for (std::size_t i = 0; i < travel.size(); ++i) {
      plan.copy(where[travel[i]], {Area::kScratch, leaving.offset + i * part, part});
      where[travel[i]] = {Area::kScratch, coming.offset + i * part, part};
    }
    send(plan, (shape.rank + bit) % n, {leaving}, pieces_of(shape));
    recv(plan, (shape.rank + n - bit) % n, {coming}, pieces_of(shape));
  }
  for (int distance = 0; distance < n; ++distance) plan.copy(where[distance], out[(shape.rank + n - distance) % n]);
  return std::move(plan).build();
}

}  // namespace tutti::comm
