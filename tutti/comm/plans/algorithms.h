#pragma once
// All collective algorithms, one family per file. Each is a pure function of its Shape. It is correct for any group
// size (including 1), for any count (including 0), in place and out of place. The order in which a plan adds depends
// only on group size, rank order and element. So all ranks get the same bits, and so do two runs.
// docs/dev/algorithms.md lists the cost of each algorithm.
#include <span>

#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti::comm {

// Bandwidth-optimal: 2(n-1)/n of the vector each way, in 2(n-1) hops, pipelined by segment. [Patarasuk, Yuan 2009]
Plan all_reduce_ring(const Shape& shape);
// Latency-optimal: ceil(log2 n) exchanges of the whole vector. Ranks beyond the largest power of two fold into a
// partner. [Thakur, Rabenseifner, Gropp 2005]
Plan all_reduce_recursive_doubling(const Shape& shape);
// If n is a power of two: the ring's bytes in 2 log2 n hops. Otherwise it transfers the vector twice more.
// [Rabenseifner 2004]
Plan all_reduce_halving_doubling(const Shape& shape);
// For any n: the ring's bytes in 2 ceil(log2 n) hops. [Bruck 1997, Träff 2024]
Plan all_reduce_bruck(const Shape& shape);
// The ring's bytes in 2 hops of n-1 messages each.
Plan all_reduce_mesh(const Shape& shape);
// Reduce-scatter inside each host, all-reduce between hosts, all-gather inside. All two-level plans need shape.hosts.
Plan all_reduce_two_level(const Shape& shape);

// ceil(log2 n) hops of the whole vector.
Plan broadcast_binomial(const Shape& shape);
// n-1 hops, pipelined by segment. For large vectors every link carries the vector once.
Plan broadcast_chain(const Shape& shape);
// Scatter, then all-gather: at most twice the vector over a link, in 2 ceil(log2 n) hops. [Barnett et al. 1994]
Plan broadcast_van_de_geijn(const Shape& shape);
// The vector is sent to each host once.
Plan broadcast_two_level(const Shape& shape);
Plan reduce_binomial(const Shape& shape);
Plan reduce_chain(const Shape& shape);
Plan reduce_van_de_geijn(const Shape& shape);
Plan reduce_two_level(const Shape& shape);

// n-1 hops of one part each. Supports out_splits.
Plan all_gather_ring(const Shape& shape);
// ceil(log2 n) hops. Supports out_splits. [Bruck 1997]
Plan all_gather_bruck(const Shape& shape);
// 1 hop of n-1 messages. Supports out_splits.
Plan all_gather_mesh(const Shape& shape);
// Each part is sent to each host once. Supports out_splits.
Plan all_gather_two_level(const Shape& shape);

// n-1 hops of one part each. Adds in ring order, starting at the rank after the part's owner. Supports in_splits.
Plan reduce_scatter_ring(const Shape& shape);
// ceil(log2 n) hops (recursive halving for any n). Supports in_splits.
Plan reduce_scatter_bruck(const Shape& shape);
// 1 hop of n-1 messages. Supports in_splits.
Plan reduce_scatter_mesh(const Shape& shape);
// Each part leaves each host once. Supports in_splits.
Plan reduce_scatter_two_level(const Shape& shape);

// The root exchanges one message with each rank. gather supports out_splits, scatter in_splits.
Plan gather_direct(const Shape& shape);
Plan scatter_direct(const Shape& shape);

// In round k each rank sends to rank + k and receives from rank - k. Supports splits.
Plan all_to_all_pairwise(const Shape& shape);
// ceil(log2 n) hops of half the vector each. Even parts only. [Bruck 1997]
Plan all_to_all_bruck(const Shape& shape);

// ceil(log2 n) hops of the whole vector; an exscan needs one more hop. [Hillis, Steele 1986]
Plan scan_recursive_doubling(const Shape& shape);
Plan exscan_recursive_doubling(const Shape& shape);
// n-1 hops, pipelined by segment. For large vectors every link carries the vector once.
Plan scan_chain(const Shape& shape);
Plan exscan_chain(const Shape& shape);

// ceil(log2 n) rounds of one byte. [Hensgen, Finkel, Manber 1988]
Plan barrier_dissemination(const Shape& shape);

// All algorithms, grouped by verb; within a verb the simpler ones come first.
struct AlgorithmRow {
  Kind kind;
  Algorithm algorithm;
  Plan (*plan)(const Shape&);
  bool uneven = false;         // supports splits
  bool several_hosts = false;  // useful only with at least two hosts, one of them with several ranks
  bool aside = false;          // needs scratch memory of about the vector's size
};
std::span<const AlgorithmRow> algorithm_table();

}  // namespace tutti::comm
