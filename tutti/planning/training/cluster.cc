#include "tutti/planning/training/cluster.h"

#include <algorithm>
#include <limits>

namespace tutti {

Status check(const Cluster& cluster) {
  const std::string name = cluster.name.empty() ? std::string("cluster") : "cluster " + cluster.name;
  if (cluster.devices() < 1) return invalid_argument(name + " has no devices", "count and devices of its nodes");
  int most = 0;  // devices of a node
  for (const ClusterNodes& nodes : cluster.nodes) {
    if (nodes.count < 1 || nodes.devices < 1)
      return invalid_argument(name + " has nodes without devices", "count and devices of its nodes");
    if (!(nodes.memory > 0))
      return invalid_argument(name + " does not say how much memory a device has", "memory of its nodes");
    if (!(nodes.speed > 0))
      return invalid_argument(name + " has nodes without a speed", "1, or their part of what its device computes");
    most = std::max(most, nodes.devices);
  }
  const auto& network = cluster.network;
  if (cluster.devices() > 1 && most > 1 && !(network.inside.bandwidth > 0))
    return invalid_argument(name + " has no bandwidth inside a node", "inside.bandwidth of its network");
  if (cluster.devices() > most && !(network.between.bandwidth > 0))
    return invalid_argument(name + " has no bandwidth between nodes", "between.bandwidth of its network");
  const auto& device = cluster.device;
  if (device.products.empty() && !(device.peak > 0 && device.share > 0))
    return invalid_argument(name + " does not say how fast a device multiplies", "peak, or measured products");
  if (!(device.stream_bandwidth > 0))
    return invalid_argument(name + " does not say how fast a device reads memory", "stream_bandwidth of the device");
  return {};
}

double usable_memory(const Cluster& cluster) {
  constexpr double kUsable = 0.9;
  double least = std::numeric_limits<double>::infinity();
  for (const ClusterNodes& nodes : cluster.nodes) least = std::min(least, nodes.memory);
  return kUsable * least;
}

namespace planning {

Cluster with_devices(Cluster cluster, int devices) {
  std::vector<ClusterNodes> nodes;
  cluster.nodes.back().count = devices;  // at least as many as are needed
  for (ClusterNodes same : cluster.nodes) {
    const int whole = std::min(same.count, devices / same.devices);
    const bool is_last = whole < same.count;
    devices -= whole * same.devices;
    if (whole > 0) nodes.push_back(same), nodes.back().count = whole;
    if (!is_last) continue;
    same.count = 1;
    same.devices = devices;  // of a node that is not used as a whole
    if (devices > 0) nodes.push_back(same);
    break;
  }
  cluster.nodes = nodes;
  return cluster;
}

}  // namespace planning
}  // namespace tutti
