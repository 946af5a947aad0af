#pragma once
// How long one device computes, and how long devices of a cluster exchange data, in closed form. Seconds and bytes.
#include "tutti/planning/training/cluster.h"

namespace tutti::planning {

// A product of `batch` pairs of matrices, where a number has `element` bytes: the larger one of what its operations and
// what its bytes take, and product_start. If the device has measured products, their rate near these sizes, with `busy`
// devices of the node at work.
double product_time(const DeviceRates& device, ProductKind kind, double m, double n, double k, double batch,
                    double element, int busy);
// Element-wise operations.
struct ElementWork {
  double bytes = 0;      // that they read and write
  double functions = 0;  // numbers that pass through exp, GELU or the like
  double calls = 0;      // of operations
};
double element_time(const DeviceRates& device, const ElementWork& work);

// The devices are cores of CPUs.
bool is_on_cores(const Cluster& cluster);

// Bytes after which an average starts while backward runs: what is left of it when the last backward ends.
inline constexpr double kLastBucket = 25.0 * 1024 * 1024;
inline constexpr double kUpdateKernels = 20;  // of an optimizer's step

// Factor of all computations: above 1 where the devices of a node outnumber its cores, and were not measured together.
double crowding(const Cluster& cluster);
// What is left of a transfer behind a computation: the rest of it, and a part of what is hidden.
double exposed_time(const Cluster& cluster, double transfer, double computation);

// Where the ranks of a group are. Groups along an axis consist of ranks with a fixed stride.
struct GroupPlace {
  int size = 1;
  int here = 1;     // ranks of the group on one node
  int at_once = 1;  // groups along this axis that share the cards of a node, all at the same time
  bool is_inside() const { return here == size; }
};
// Nodes of `devices` devices each.
GroupPlace place_of(int devices, int stride, int size);

enum class ClusterVerb { kAllReduce, kReduceScatter, kAllGather };
// `bytes`: the whole vector on a rank. `share`: of the bandwidth.
double collective_time(const ClusterNetwork& network, ClusterVerb verb, const GroupPlace& place, double bytes,
                       double share = 1);
// A message from each of `ranks` ranks, which are `stride` apart, to the next one, while the other devices of a node
// send theirs. If some of the messages cross nodes, such a one: the others wait for it.
double message_time(const ClusterNetwork& network, int devices, int stride, int ranks, double bytes);

}  // namespace tutti::planning
