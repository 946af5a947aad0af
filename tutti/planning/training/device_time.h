#pragma once
// How long one device computes, and how long devices of a cluster exchange data, in closed form. Seconds and bytes.
#include "tutti/planning/training/cluster.h"
#include "tutti/planning/training/node_layout.h"

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

// Factor of all computations on a device of these nodes: by ClusterNodes::speed, and by the cores of a node where its
// devices outnumber them and were not measured together.
double slowness(const Cluster& cluster, const ClusterNodes& nodes);
double slowness(const Cluster& cluster);  // of the slowest device
// What is left of a transfer behind a computation: the rest of it, and a part of what is hidden.
double exposed_time(const Cluster& cluster, double transfer, double computation);

enum class ClusterVerb { kAllReduce, kReduceScatter, kAllGather };
// `bytes`: the whole vector on a rank. `share`: of the bandwidth.
double collective_time(const ClusterNetwork& network, ClusterVerb verb, const GroupPlace& place, double bytes,
                       double share = 1);
// A message to another rank, while `crossing` devices of a node send theirs to other nodes. If some of the messages of
// an axis cross nodes, such a one: the others wait for it. (NodeLayout::crossing)
double message_time(const ClusterNetwork& network, int crossing, double bytes);

}  // namespace tutti::planning
