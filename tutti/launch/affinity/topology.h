#pragma once
// The cores of this host and how they lie together: what binding ranks to cores needs to know, and no more.
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"

namespace tutti {

struct Core {
  std::vector<int> cpus;  // its hardware threads as the kernel numbers them, ascending; at least one
  int socket = 0;
  int numa = 0;

  bool operator==(const Core&) const = default;
};
// Cores in the order in which they lie: socket by socket, in it one NUMA node after another.
using Topology = std::vector<Core>;

// Reads the topology of this host, without what `allowed` leaves out. `tutti run` gives hwloc's
// (hwloc_topology.h) where it was built with it.
using ReadTopology = std::function<Result<Topology>(const CoreMask& allowed)>;

// What the kernel says in /sys, here `folder`: devices/system/cpu/cpu*/topology and devices/system/node/node*.
Result<Topology> topology_from_sys(const CoreMask& allowed, const std::string& folder = "/sys");

}  // namespace tutti
