#pragma once
// Every algorithm, a family a file. Each is a pure function of its Shape, right for any size of group (1 included), any
// count (0 included), in place and not. The order in which a plan adds depends on size, rank order and element only, so
// that all ranks get the same bits and two runs do, too. What each costs: docs/collectives.md.
#include <span>

#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti {

// Bandwidth: 2(n-1)/n of the vector each way, in 2(n-1) hops, pipelined by segment. [Patarasuk, Yuan 2009]
Plan all_reduce_ring(const Shape& shape);
// Latency: ceil(log2 n) exchanges of the whole vector; ranks beyond the largest power of two fold into a partner.
// [Thakur, Rabenseifner, Gropp 2005]
Plan all_reduce_recursive_doubling(const Shape& shape);
// Both, where n is a power of two: the ring's bytes in 2 log2 n hops. Else the vector twice more. [Rabenseifner 2004]
Plan all_reduce_halving_doubling(const Shape& shape);
// Both, for any n: the ring's bytes in 2 ceil(log2 n) hops. [Bruck 1997, Träff 2024]
Plan all_reduce_bruck(const Shape& shape);
// The ring's bytes in 2 hops of n-1 messages each.
Plan all_reduce_mesh(const Shape& shape);
// Reduce-scatter inside each host, all-reduce between hosts, all-gather inside. The two-level plans need shape.hosts.
Plan all_reduce_two_level(const Shape& shape);

// ceil(log2 n) hops of the whole vector.
Plan broadcast_binomial(const Shape& shape);
// n-1 hops, pipelined by segment: for large vectors every link carries the vector once.
Plan broadcast_chain(const Shape& shape);
// Scatter and all-gather: at most twice the vector over a link, in 2 ceil(log2 n) hops. [Barnett et al. 1994]
Plan broadcast_van_de_geijn(const Shape& shape);
// The vector crosses to each host once.
Plan broadcast_two_level(const Shape& shape);
Plan reduce_binomial(const Shape& shape);
Plan reduce_chain(const Shape& shape);
Plan reduce_van_de_geijn(const Shape& shape);
Plan reduce_two_level(const Shape& shape);

// n-1 hops of one part each. Understands out_splits.
Plan all_gather_ring(const Shape& shape);
// ceil(log2 n) hops. Understands out_splits. [Bruck 1997]
Plan all_gather_bruck(const Shape& shape);
// 1 hop of n-1 messages. Understands out_splits.
Plan all_gather_mesh(const Shape& shape);
// Each part crosses to each host once. Understands out_splits.
Plan all_gather_two_level(const Shape& shape);

// n-1 hops of one part each; sums in ring order, starting at the rank after the part's owner.
// Understands in_splits.
Plan reduce_scatter_ring(const Shape& shape);
// ceil(log2 n) hops (recursive halving for any n). Understands in_splits.
Plan reduce_scatter_bruck(const Shape& shape);
// 1 hop of n-1 messages. Understands in_splits.
Plan reduce_scatter_mesh(const Shape& shape);
// Each part crosses from each host once. Understands in_splits.
Plan reduce_scatter_two_level(const Shape& shape);

// The root talks to each rank. Understand out_splits and in_splits.
Plan gather_direct(const Shape& shape);
Plan scatter_direct(const Shape& shape);

// Round k exchanges with the ranks k after and k before. Understands splits.
Plan all_to_all_pairwise(const Shape& shape);
// ceil(log2 n) hops of half of the vector each; even parts only. [Bruck 1997]
Plan all_to_all_bruck(const Shape& shape);

// ceil(log2 n) hops of the whole vector; an exscan one more. [Hillis, Steele 1986]
Plan scan_recursive_doubling(const Shape& shape);
Plan exscan_recursive_doubling(const Shape& shape);
// n-1 hops, pipelined by segment: for large vectors every link carries the vector once.
Plan scan_chain(const Shape& shape);
Plan exscan_chain(const Shape& shape);

// ceil(log2 n) rounds of one byte. [Hensgen, Finkel, Manber 1988]
Plan barrier_dissemination(const Shape& shape);

// All of them, by the verbs that they carry out; of each verb the simpler ones first.
struct AlgorithmRow {
  Kind kind;
  Algorithm algorithm;
  Plan (*plan)(const Shape&);
  bool uneven = false;         // understands splits
  bool several_hosts = false;  // at least two, and one of them with several ranks; else as good as another one
  bool aside = false;          // needs memory as long as the vector, more or less
};
std::span<const AlgorithmRow> algorithm_table();

}  // namespace tutti
