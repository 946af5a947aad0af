// Two levels: a reduce-scatter inside each host, an all-reduce between hosts, an all-gather inside. What crosses the
// wire is added up inside the host first, and every rank that can carries a share of it, so a host's card passes 2
// (h-1)/h of the vector however many ranks the host has.
//
// Hosts may have different numbers of ranks. Then there are two ways to cut the vector: on a host of m ranks into m
// *pieces*, one a rank, so that all of them add; and into c *shards*, the same everywhere, c the ranks of the smallest
// host. A shard's *carrier* on a host is one of its ranks. Between the levels the owners of pieces hand what overlaps a
// shard to its carrier, and get it back afterwards. Where all hosts are equal, pieces are shards, and nothing is handed
// over.
//
// Between hosts short shards take recursive doubling, long ones Bruck's exchanges. Segments run through all levels on
// their own: the dependencies are those of the bytes.
#include <algorithm>

#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {
namespace {

// Of a shard: here the hops of Bruck's exchanges, twice as many, begin to pay.
constexpr std::size_t kLongShard = 32 << 10;

Range overlap(const Range& a, const Range& b) {
  const std::size_t begin = std::max(a.offset, b.offset), end = std::min(a.offset + a.bytes, b.offset + b.bytes);
  return {a.area, begin, begin < end ? end - begin : 0};
}

void all_reduce_between(PlanBuilder& plan, const Members& hosts, const Range& from, const Range& into,
                        const Pieces& pieces) {
  if (into.bytes < kLongShard) return all_reduce_doubling(plan, hosts, from, into);
  const Parts out = even_parts(into, pieces.element, hosts.size());
  reduce_scatter_bruck(plan, hosts, even_parts(from, pieces.element, hosts.size()), out, pieces);
  all_gather_bruck(plan, hosts, out, pieces);
}

}  // namespace

Plan all_reduce_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Pieces cut = pieces_of(shape);
  const std::size_t bytes = shape.count * shape.element;
  const Range out{Area::kOut, 0, bytes}, in{shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Members here = on_host(shape);
  const Hosts& hosts = *shape.hosts;
  const int m = here.size(), me = here.place, c = hosts.fewest();
  const Parts pieces = even_parts(out, shape.element, m), shards = even_parts(out, shape.element, c);

  if (m > 1) reduce_scatter_mesh(plan, here, even_parts(in, shape.element, m), pieces[me], cut);
  // What owner and carrier hand over, in one direction or the other.
  const auto hand_over = [&](bool to_carrier) {
    if (m == c) return;
    for (int shard = 0; shard < c; ++shard) {
      const int carrier = carrier_of(shard, c, m);
      for (int owner = 0; owner < m; ++owner) {
        const Range both = overlap(pieces[owner], shards[shard]);
        if (owner == carrier || both.bytes == 0 || (me != owner && me != carrier)) continue;
        const int peer = here.at(me == owner ? carrier : owner);
        if ((me == owner) == to_carrier)
          send(plan, peer, {both}, cut);
        else
          recv(plan, peer, {both}, cut);
      }
    }
  };
  hand_over(true);
  for (int shard = 0; shard < c; ++shard) {
    if (carrier_of(shard, c, m) != me) continue;
    const Range from{m > 1 ? Area::kOut : in.area, shards[shard].offset, shards[shard].bytes};
    all_reduce_between(plan, carriers(shape, shard), from, shards[shard], cut);
  }
  hand_over(false);
  all_gather_mesh(plan, here, pieces, cut);
  return std::move(plan).build();
}

}  // namespace tutti
