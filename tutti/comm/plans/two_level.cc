// Algorithms that treat ranks of one host and of several differently.
#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti {

Members on_host(const Shape& shape) {
  TUTTI_INVARIANT(shape.hosts && shape.hosts->ranks() == shape.size, "a two-level plan must know the hosts of ",
                  shape.size, " ranks");
  return {shape.hosts->ranks_on(shape.hosts->host_of(shape.rank)), shape.hosts->place_of(shape.rank)};
}

Members entrances(const Shape& shape) {
  const Hosts& hosts = *shape.hosts;
  const int first = hosts.host_of(shape.root), count = hosts.count();
  Members members{.ranks = {}, .place = (hosts.host_of(shape.rank) - first + count) % count};
  for (int i = 0; i < count; ++i)
    members.ranks.push_back(i == 0 ? shape.root : hosts.ranks_on((first + i) % count).front());
  return members;
}

Members beginning_with(Members members, int first) {
  std::rotate(members.ranks.begin(), members.ranks.begin() + first, members.ranks.end());
  members.place = (members.place - first + members.size()) % members.size();
  return members;
}

Members carriers(const Shape& shape, int number) {
  const Hosts& hosts = *shape.hosts;
  Members members{.ranks = {}, .place = hosts.host_of(shape.rank)};
  for (int host = 0; host < hosts.count(); ++host) {
    const auto& ranks = hosts.ranks_on(host);
    members.ranks.push_back(ranks[std::size_t(carrier_of(number, hosts.fewest(), int(ranks.size())))]);
  }
  return members;
}

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

// Between hosts first, where every rank that can carries a share: the c carriers of a host (c the ranks of the smallest
// host) take the parts of some ranks of their host each, their own among them, and exchange them with the carriers of
// the same number on the other hosts. Then all ranks of a host exchange what they have. A host's card takes in each
// part of another host once.
Plan all_gather_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Pieces cut = pieces_of(shape);
  const Parts parts = parts_of(Area::kOut, shape, shape.out_splits);
  const Members here = on_host(shape);
  const Hosts& hosts = *shape.hosts;
  const int m = here.size(), me = here.place, c = hosts.fewest();
  if (!shape.in_place) plan.copy({Area::kIn, 0, parts[shape.rank].bytes}, parts[shape.rank]);

  // The parts of a host that one carrier takes: those of the ranks from its place up to the next carrier's.
  const auto share = [&](int host, int carrier) {
    const auto& ranks = hosts.ranks_on(host);
    const int size = int(ranks.size());
    std::vector<Range> ranges;
    for (int place = carrier_of(carrier, c, size); place < carrier_of(carrier + 1, c, size); ++place)
      ranges.push_back(parts[ranks[place]]);
    return ranges;
  };
  int mine = 0;  // the carrier that takes this rank's part
  while (carrier_of(mine + 1, c, m) <= me) ++mine;
  const int carrier = carrier_of(mine, c, m);
  if (me != carrier) {
    send(plan, here.at(carrier), {parts[shape.rank]}, cut);
  } else {
    for (int place = carrier + 1; place < carrier_of(mine + 1, c, m); ++place)
      recv(plan, here.at(place), {parts[here.at(place)]}, cut);
    ScatteredParts shares;
    for (int host = 0; host < hosts.count(); ++host) shares.push_back(share(host, mine));
    all_gather_bruck(plan, carriers(shape, mine), shares, cut);
  }

  // Inside, a carrier has its share of every other host and gives its own part as all do.
  ScatteredParts has(std::size_t(m), std::vector<Range>{});
  for (int place = 0; place < m; ++place) has[place].push_back(parts[here.at(place)]);
  for (int host = 0; host < hosts.count(); ++host) {
    if (host == hosts.host_of(shape.rank)) continue;
    for (int i = 0; i < c; ++i) {
      const std::vector<Range> ranges = share(host, i);
      std::vector<Range>& all = has[carrier_of(i, c, m)];
      all.insert(all.end(), ranges.begin(), ranges.end());
    }
  }
  all_gather_mesh(plan, here, has, cut);
  return std::move(plan).build();
}

// all_gather_two_level backwards. The carriers of a host (as many as the smallest host has ranks) share the parts of
// all ranks out among themselves: carrier k those of the ranks that stand where carrier k stands, and up to the next
// one, on every host. The ranks of a host send each carrier what is its share, and it adds. The carriers of the same
// number on all hosts then exchange their sums, each getting those of its own host, and hand the parts to their owners.
// A host's card takes in each part of its own ranks once from every other host.
Plan reduce_scatter_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Pieces cut = pieces_of(shape);
  const Parts in = parts_of(Area::kIn, shape, shape.in_splits);
  const Range out{Area::kOut, 0, in[std::size_t(shape.rank)].bytes};
  const Members here = on_host(shape);
  const Hosts& hosts = *shape.hosts;
  const int m = here.size(), me = here.place, c = hosts.fewest(), my_host = hosts.host_of(shape.rank);

  // The ranks of a host whose parts one carrier takes.
  const auto share = [&](int host, int carrier) {
    const auto& ranks = hosts.ranks_on(host);
    const int size = int(ranks.size());
    return std::vector<int>(ranks.begin() + carrier_of(carrier, c, size),
                            ranks.begin() + carrier_of(carrier + 1, c, size));
  };
  int mine = 0;  // the carrier that takes this rank's part
  while (carrier_of(mine + 1, c, m) <= me) ++mine;
  const bool carries = carrier_of(mine, c, m) == me;

  for (int hop = 1; hop < m; ++hop) {
    for (int number = 0; number < c; ++number) {
      if (carrier_of(number, c, m) != (me + hop) % m) continue;
      for (int host = 0; host < hosts.count(); ++host)
        for (const int owner : share(host, number)) send(plan, here.at(me + hop), {in[std::size_t(owner)]}, cut);
    }
  }
  if (!carries) {
    recv(plan, here.at(carrier_of(mine, c, m)), {out}, cut);
    return std::move(plan).build();
  }
  // The sums of this host, where it adds any; of its own ranks they become the results.
  Parts sums = in;
  for (int host = 0; host < hosts.count(); ++host) {
    for (const int owner : share(host, mine)) {
      Range& sum = sums[std::size_t(owner)];
      if (owner == shape.rank)
        sum = out;
      else if (m > 1 || host == my_host)
        sum = plan.scratch(sum.bytes);
      Range so_far = in[std::size_t(owner)];
      for (int hop = 1; hop < m; ++hop) {
        recv_reduce(plan, here.at(me - hop), so_far, sum, cut);
        so_far = sum;
      }
    }
  }
  const Members others = carriers(shape, mine);
  for (int hop = 1; hop < others.size(); ++hop) {
    const int to = (others.place + hop) % others.size();
    for (const int owner : share(to, mine)) send(plan, others.at(to), {sums[std::size_t(owner)]}, cut);
  }
  for (const int owner : share(my_host, mine)) {
    const Range& sum = sums[std::size_t(owner)];
    for (int hop = 1; hop < others.size(); ++hop)
      recv_reduce(plan, others.at(others.place - hop), m > 1 || hop > 1 ? sum : in[std::size_t(owner)], sum, cut);
    if (m == 1 && others.size() == 1) plan.copy(in[std::size_t(owner)], sum);
    if (owner != shape.rank) send(plan, owner, {sum}, cut);
  }
  return std::move(plan).build();
}

// From the root to one rank of every other host, and inside each host from there: the vector crosses each wire once. A
// short vector takes binomial trees, a long one chains, whose segments flow through both levels at once.

namespace {

constexpr std::size_t kLongBroadcast = 256 << 10;

}  // namespace

Plan broadcast_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Members between = entrances(shape);
  Members inside = on_host(shape);
  inside = beginning_with(std::move(inside), shape.hosts->place_of(between.ranks[std::size_t(between.place)]));
  const Range out{Area::kOut, 0, shape.count * shape.element};
  const bool is_long = out.bytes >= kLongBroadcast;
  if (inside.place == 0)
    is_long ? broadcast_chain(plan, between, out, pieces_of(shape)) : broadcast_binomial(plan, between, out);
  is_long ? broadcast_chain(plan, inside, out, pieces_of(shape)) : broadcast_binomial(plan, inside, out);
  return std::move(plan).build();
}

// Each host reduces to one of its ranks, on the root's host to the root, and these reduce to the root: the vector
// crosses each wire once. A short vector takes binomial trees, a long one chains, whose segments flow through both
// levels at once: broadcast_two_level backwards.

namespace {

constexpr std::size_t kLongReduce = 256 << 10;

}  // namespace

Plan reduce_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Members between = entrances(shape);
  Members inside = on_host(shape);
  inside = beginning_with(std::move(inside), shape.hosts->place_of(between.ranks[std::size_t(between.place)]));
  const std::size_t bytes = shape.count * shape.element;
  const bool root = shape.rank == shape.root, is_long = bytes >= kLongReduce;
  const Range in{root && shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  const Range sum = root ? Range{Area::kOut, 0, bytes} : plan.scratch(bytes);
  if (shape.size == 1) plan.copy(in, sum);
  const auto reduce = [&](const Members& members, const Range& own) {
    return is_long ? reduce_chain(plan, members, own, sum, pieces_of(shape))
                   : reduce_binomial(plan, members, own, sum, pieces_of(shape));
  };
  const Range of_host = reduce(inside, in);
  if (inside.place == 0) reduce(between, of_host);
  return std::move(plan).build();
}

}  // namespace tutti
