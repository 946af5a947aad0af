// Algorithms that treat links inside a host and between hosts differently.
#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti::comm {

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

// Two levels: a reduce-scatter inside each host, an all-reduce between hosts, an all-gather inside. Each host sums its
// vectors before anything crosses the wire. As many of its ranks as possible carry a share of the sum. So a host's card
// sends 2 (h-1)/h of the vector (h hosts), however many ranks the host has.
//
// Hosts may have different numbers of ranks. Then the vector is cut in two ways:
//
// - On a host of m ranks into m *pieces*, one per rank, so that all ranks add.
// - Into c *shards*, the same on all hosts, where c is the number of ranks on the smallest host. On each host one rank
//   is the *carrier* of a shard.
//
// Between the levels the owner of a piece sends the overlap of piece and shard to the shard's carrier. It receives the
// result afterwards. If all hosts have equally many ranks, pieces are shards and nothing is sent here.
//
// Between hosts, short shards use recursive doubling, long ones Bruck's exchanges. Segments flow through all levels
// independently: the only dependencies are those of the bytes.

namespace {

// Shard size in bytes from which Bruck's exchanges, which need twice as many hops, are faster.
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
  // The transfers between owners and carriers, in one direction or the other.
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

// First between hosts, where as many ranks as possible carry a share. Each host has c carriers, where c is the number
// of ranks on the smallest host. A carrier collects the parts of some ranks of its host, including its own. It
// exchanges them with the carriers of the same number on the other hosts. Then all ranks of a host exchange the parts
// that they have. A host's card receives each part of another host once.
Plan all_gather_two_level(const Shape& shape) {
  PlanBuilder plan(Algorithm::kTwoLevel);
  const Pieces cut = pieces_of(shape);
  const Parts parts = parts_of(Area::kOut, shape, shape.out_splits);
  const Members here = on_host(shape);
  const Hosts& hosts = *shape.hosts;
  const int m = here.size(), me = here.place, c = hosts.fewest();
  if (!shape.in_place) plan.copy({Area::kIn, 0, parts[shape.rank].bytes}, parts[shape.rank]);

  // The parts of a host that one carrier takes: those of the ranks from its own place up to the next carrier.
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

  // Inside a host, a carrier contributes its share of every other host, and its own part like every rank.
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

// all_gather_two_level backwards. Each host has as many carriers as the smallest host has ranks, and the carriers
// divide the parts of all ranks among themselves. On every host carrier k takes the parts of the ranks from the place
// of carrier k up to the next carrier. The ranks of a host send each carrier its share, and the carrier adds. Then the
// carriers of the same number on all hosts exchange their sums: each receives the sums for its own host and sends the
// parts to their owners. A host's card receives each part of its own ranks once from every other host.
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
  // The sums that this carrier computes. Those for ranks of its own host become the results.
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

// From the root to one rank of every other host, and from there inside each host: the vector crosses each wire once. A
// short vector uses binomial trees. A long vector uses chains, whose segments flow through both levels at once.

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

// broadcast_two_level backwards. Each host reduces to one of its ranks (the root's host to the root), and these ranks
// reduce to the root: the vector crosses each wire once. A short vector uses binomial trees. A long vector uses chains,
// whose segments flow through both levels at once.

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

}  // namespace tutti::comm
