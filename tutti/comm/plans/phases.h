#pragma once
// Phases are the building blocks of the algorithms. A phase runs among some ranks of the group (its Members), over a
// vector that is cut into one part per member. It appends its steps to a plan. An all_reduce is a reduce-scatter phase
// and an all-gather phase. A collective over several hosts is a phase inside each host, a phase between hosts, and
// another one inside.
//
// Every member of a phase must call it with the same Members (except for `place`), parts of the same sizes and the same
// segment size, because the steps of a rank are one side of the messages of its peers. Parts may be empty and of
// different sizes.
#include <span>
#include <vector>

#include "tutti/comm/plans/plan.h"

namespace tutti::comm {

// The ranks of a phase, in the order that the phase uses, and the index (place) of this rank in that order.
struct Members {
  std::vector<int> ranks;
  int place = 0;

  int size() const { return int(ranks.size()); }
  // Places wrap around: -1 is the last.
  int at(int other) const { return ranks[std::size_t((other % size() + size()) % size())]; }
};

// All ranks of the group, starting with `first`.
Members everybody(const Shape& shape, int first = 0);
// The ranks on this rank's host. This function and the next three need shape.hosts.
Members on_host(const Shape& shape);
// The rank on each host that carries share `number` of the data between hosts. This rank must be one of them. There are
// as many shares as the smallest host has ranks.
Members carriers(const Shape& shape, int number);
// The rank on each host through which the data of a rooted collective enters and leaves the host. It is the root on the
// root's host, and the host's first rank elsewhere. The root's host comes first. `place` is that of this rank's host.
Members entrances(const Shape& shape);
// The same members, rotated so that the member at place `first` comes first.
Members beginning_with(Members members, int first);
// The place of the carrier of share `number` on a host with `ranks` ranks. If number == shares: `ranks`.
constexpr int carrier_of(int number, int shares, int ranks) { return int(std::int64_t(number) * ranks / shares); }

// One range per member, by place. ScatteredParts has several ranges per member.
using Parts = std::vector<Range>;
using ScatteredParts = std::vector<std::vector<Range>>;

// Cuts a vector evenly. (parts_of() in plan.h gives the parts that the verb defines.)
Parts even_parts(const Range& whole, std::size_t element, int parts);
// Reorders parts so that they start with rank `first`: part i is that of rank first + i.
Parts rotated(Parts parts, int first);

// How to cut transfers: pieces of whole elements, at most `segment` bytes each.
struct Pieces {
  std::size_t element = 1, segment = 256 << 10;
};
inline Pieces pieces_of(const Shape& shape) { return {shape.element, shape.segment}; }

// `count` parts from place `first` on, wrapping around the end. Contiguous parts become one range. The result holds at
// least one range, possibly of 0 bytes, so that sender and receiver of nothing both expect a message.
std::vector<Range> joined(std::span<const Range> parts, int first, int count);
std::vector<Range> joined(const ScatteredParts& parts, int first, int count);

void send(PlanBuilder& plan, int peer, const std::vector<Range>& from, const Pieces& pieces);
void recv(PlanBuilder& plan, int peer, const std::vector<Range>& into, const Pieces& pieces);
// `from` and `into` are cut at the same offsets.
void recv_reduce(PlanBuilder& plan, int peer, const Range& from, const Range& into, const Pieces& pieces);

// Reduce-scatter: afterwards sums[place] holds the sum of in[place] of all members. `in` is only read, but sums[i] may
// be the same memory as in[i]. The other sums have room for partial sums, as long as the parts of `in`.
//
// Mesh: every member sends each peer its part at once. 1 hop, n-1 messages each way. Needs no memory but sums[place].
void reduce_scatter_mesh(PlanBuilder& plan, const Members& members, const Parts& in, const Range& sum,
                         const Pieces& pieces);
// Circulant halving: ceil(log2 n) hops, (n-1)/n of the vector each way, for any n. Writes sums[place + i] for i up to
// half of n.
void reduce_scatter_bruck(PlanBuilder& plan, const Members& members, const Parts& in, const Parts& sums,
                          const Pieces& pieces);

// All-gather: afterwards every member has all parts. On entry parts[place] must hold this member's part.
void all_gather_mesh(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);
// Bruck's concatenation: ceil(log2 n) hops, for any n.
void all_gather_bruck(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);
// For parts that consist of several ranges.
void all_gather_mesh(PlanBuilder& plan, const Members& members, const ScatteredParts& parts, const Pieces& pieces);
void all_gather_bruck(PlanBuilder& plan, const Members& members, const ScatteredParts& parts, const Pieces& pieces);

// All-reduce of a whole vector; `in` may be `out`. Recursive doubling: ceil(log2 n) exchanges of the whole vector.
void all_reduce_doubling(PlanBuilder& plan, const Members& members, const Range& in, const Range& out);

// Broadcast from place 0. Binomial: ceil(log2 n) hops of the whole vector. Chain: n-1 hops, pipelined by segment.
void broadcast_binomial(PlanBuilder& plan, const Members& members, const Range& vector);
void broadcast_chain(PlanBuilder& plan, const Members& members, const Range& vector, const Pieces& pieces);

// Reduce to place 0, with the message patterns of the two broadcasts above. `own` is this member's input. `sum` has
// room for partial sums, and at place 0 for the result. Members that only send (the end of a chain, the leaves of a
// tree) do not touch `sum`. Afterwards a member has sent the sum of itself and the members below it. At place 0 the
// returned range holds the result: `sum`, or `own` if there are no other members.
Range reduce_binomial(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum,
                      const Pieces& pieces);
Range reduce_chain(PlanBuilder& plan, const Members& members, const Range& own, const Range& sum, const Pieces& pieces);

// Binomial trees over parts with the root at place 0. Member p temporarily holds the parts of the members below it.
void scatter_binomial(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);
void gather_binomial(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces);

}  // namespace tutti::comm
