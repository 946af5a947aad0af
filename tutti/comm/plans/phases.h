#pragma once
// Phases: what algorithms are made of. A phase runs among some ranks of the group (its Members), over a vector that is
// cut into one part a member, and appends its steps to a plan. An all_reduce is a reduce-scatter phase and an
// all-gather phase; a collective over several hosts is a phase inside each host, one between hosts and one inside
// again.
//
// Every member of a phase must call it with the same Members (but for its own place), parts of the same sizes and the
// same segment: each rank's steps are one side of the others' messages. Parts may be empty and of different sizes.
#include <span>
#include <vector>

#include "tutti/comm/plans/plan.h"

namespace tutti {

// The ranks among whom a phase runs, in the order of the phase, and the place of this rank among them.
struct Members {
  std::vector<int> ranks;
  int place = 0;

  int size() const { return int(ranks.size()); }
  // Places count round: -1 is the last.
  int at(int other) const { return ranks[std::size_t((other % size() + size()) % size())]; }
};

// All ranks of the group, beginning with `first`.
Members everybody(const Shape& shape, int first = 0);
// The ranks of this rank's host. This and the next three need shape.hosts.
Members on_host(const Shape& shape);
// Of every host the rank that carries share `number` of what goes between hosts; this rank must be one of them. There
// are as many shares as the smallest host has ranks.
Members carriers(const Shape& shape, int number);
// The rank of each host through which a rooted collective enters and leaves it: the host's first, on the root's host
// the root. The root's host comes first; the place is that of this rank's host.
Members entrances(const Shape& shape);
// The same members, the one at place `first` first.
Members beginning_with(Members members, int first);
// The place, on a host of `ranks`, of the carrier of one of `shares`; for number == shares: `ranks`.
constexpr int carrier_of(int number, int shares, int ranks) { return int(std::int64_t(number) * ranks / shares); }

// One range a member, by place; or several.
using Parts = std::vector<Range>;
using ScatteredParts = std::vector<std::vector<Range>>;

// A vector cut evenly. (Parts that the verb gives: parts_of() in plan.h.)
Parts even_parts(const Range& whole, std::size_t element, int parts);
// Parts by places that begin with rank `first`: part i is that of rank first + i.
Parts rotated(Parts parts, int first);

// How transfers are cut: whole elements, at most `segment` bytes a piece.
struct Pieces {
  std::size_t element = 1, segment = 256 << 10;
};
inline Pieces pieces_of(const Shape& shape) { return {shape.element, shape.segment}; }

// `count` parts from place `first` on, round the end; neighbours in memory become one range. Never empty: the least is
// one range without bytes, so that sender and receiver of nothing agree that there is a message.
std::vector<Range> joined(std::span<const Range> parts, int first, int count);
std::vector<Range> joined(const ScatteredParts& parts, int first, int count);

void send(PlanBuilder& plan, int peer, const std::vector<Range>& from, const Pieces& pieces);
void recv(PlanBuilder& plan, int peer, const std::vector<Range>& into, const Pieces& pieces);
// `from` and `into` are cut alike.
void recv_reduce(PlanBuilder& plan, int peer, const Range& from, const Range& into, const Pieces& pieces);

// Reduce-scatter: afterwards sums[place] holds the sum of everybody's in[place]. `in` is only read, but sums[i] may be
// in[i]. The other sums are room for partial sums, as long as in's parts.
//
// Mesh: every member sends each peer its part at once. 1 hop, n-1 messages each way; needs no other room than
// sums[place].
void reduce_scatter_mesh(PlanBuilder& plan, const Members& members, const Parts& in, const Range& sum,
                         const Pieces& pieces);
// Circulant halving: ceil(log2 n) hops, (n-1)/n of the vector each way, for any n. Touches sums[place + i] for i up to
// half of n.
void reduce_scatter_bruck(PlanBuilder& plan, const Members& members, const Parts& in, const Parts& sums,
                          const Pieces& pieces);

// All-gather: afterwards everybody has all parts; parts[place] is there before.
void all_gather_mesh(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);
// Bruck's concatenation: ceil(log2 n) hops, for any n.
void all_gather_bruck(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);
// The same where a member's part is several ranges.
void all_gather_mesh(PlanBuilder& plan, const Members& members, const ScatteredParts& parts, const Pieces& pieces);
void all_gather_bruck(PlanBuilder& plan, const Members& members, const ScatteredParts& parts, const Pieces& pieces);

// All-reduce of a whole vector; `in` may be `out`. Recursive doubling: ceil(log2 n) exchanges of it.
void all_reduce_doubling(PlanBuilder& plan, const Members& members, const Range& in, const Range& out);

// Broadcast from place 0: ceil(log2 n) hops of the whole vector, and n-1 hops of one segment after the other.
void broadcast_binomial(PlanBuilder& plan, const Members& members, const Range& vector);
void broadcast_chain(PlanBuilder& plan, const Members& members, const Range& vector, const Pieces& pieces);

// Reduce to place 0, in the shapes of those two broadcasts. `own` is what this member adds; `sum` is room for partial
// sums, and at place 0 the result; members that only send (the last of a chain, the leaves of a tree) do not touch it.
// Afterwards the sum of this member and those below it was sent, or at place 0 is in what is returned: sum, or own
// where there is nobody else.
Range reduce_binomial(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum,
                      const Pieces& pieces);
Range reduce_chain(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum, const Pieces& pieces);

// Binomial trees whose root is place 0, over parts: member p holds, for a while, the parts of the members below it.
void scatter_binomial(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);
void gather_binomial(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);

}  // namespace tutti
