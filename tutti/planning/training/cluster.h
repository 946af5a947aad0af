#pragma once
// A cluster as the planner of trainings sees it: a value with few figures, each of which is measured or published. A
// device is what runs one rank: a GPU, or on CPU nodes a share of the node's cores. All times are in seconds, all sizes
// in bytes. A bandwidth is what a large transfer reaches, not what a data sheet promises. cluster_file.h reads and
// writes a cluster, cluster_presets.h has the published ones.
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// Nodes that are alike. Ranks are numbered node by node, in the order of Cluster::nodes.
struct ClusterNodes {
  int count = 1;
  int devices = 1;    // ranks of a node
  double memory = 0;  // of one device
  // Cores that the devices of a node share: a device has min(1, cores / devices) of a core for each thread that it
  // would use alone. 0: each device computes by itself, as GPUs do.
  int cores = 0;
  double speed = 1;  // of a device, where Cluster::device computes at 1: in half of it everything takes twice as long
};

// A message of b bytes takes latency + overhead + b / bandwidth; consecutive messages wait for overhead and bytes.
struct ClusterLink {
  double latency = 0;
  double bandwidth = 0;  // in each direction
  double overhead = 0;   // keeps the sender busy, besides the bytes
};

struct ClusterNetwork {
  ClusterLink inside;   // from one device to another of its node
  ClusterLink between;  // from one node to another, through one card
  int cards = 1;        // of a node; its devices share them evenly
  double start = 0;     // time of a collective call besides its messages: starting kernels, waking ranks
};

// The three products of a linear layer with `m` rows, `n` outputs and `k` inputs: all cost 2 m n k operations, but
// their operands are transposed differently.
enum class ProductKind {
  kForward,         // [m, k] x [n, k]^T
  kInputGradient,   // [m, n] x [n, k]
  kWeightGradient,  // [m, n]^T x [m, k]
};

// A measured product.
struct ProductTime {
  ProductKind kind = ProductKind::kForward;
  int m = 0, n = 0, k = 0;  // of the layer, whatever the kind
  int busy = 1;             // devices of the node that computed at the same time
  double seconds = 0;
};

// How fast one device computes in the precision that is trained in. Products come from `products` if there are any,
// otherwise from peak, share and product_start.
struct DeviceRates {
  double peak = 0;              // operations per second of matrix products, as published; the base of the MFU
  double share = 1;             // of the peak, reached by large products
  double product_start = 0;     // time of a product besides its operations
  double stream_bandwidth = 0;  // bytes per second that an element-wise operation reads and writes
  double function = 0;          // time of a number that passes through exp, GELU or the like, besides its bytes
  double launch = 0;            // time of an element-wise operation besides its bytes
  std::vector<ProductTime> products{};
};

inline constexpr int kMostDevices = 1 << 20;  // of a cluster

struct Cluster {
  std::string name;  // "a100-sxm", or of the machine that was measured
  std::vector<ClusterNodes> nodes;
  ClusterNetwork network;
  DeviceRates device;

  int devices() const {
    int sum = 0;
    for (const ClusterNodes& same : nodes) sum += same.count * same.devices;
    return sum;
  }
};

// kInvalidArgument if the cluster lacks a figure that every plan needs: devices, memory, bandwidths, rates.
Status check(const Cluster& cluster);
// The bytes that a rank may use where nothing else is said: nine tenths of the smallest device.
double usable_memory(const Cluster& cluster);

namespace planning {

// The first `devices` devices of a cluster; where it has fewer, more nodes of its last kind.
Cluster with_devices(Cluster cluster, int devices);

}  // namespace planning
}  // namespace tutti
