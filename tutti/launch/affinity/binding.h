#pragma once
// The cores of this host, and which of their hardware threads each rank may use. Binding is pure arithmetic over a
// Topology.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"

namespace tutti::launch {

struct Core {
  std::vector<int> cpus;  // its hardware threads as the kernel numbers them, ascending; at least one
  int socket = 0;
  int numa = 0;

  bool operator==(const Core&) const = default;
};
// The cores, socket by socket, and in each socket one NUMA node after another.
using Topology = std::vector<Core>;

// Reads the topology of this host, without the cores that `allowed` leaves out.
using ReadTopology = std::function<Result<Topology>(const CoreMask& allowed)>;

// From the kernel's /sys, here `folder`: devices/system/cpu/cpu*/topology and devices/system/node/node*.
Result<Topology> topology_from_sys(const CoreMask& allowed, const std::string& folder = "/sys");
// From hwloc, which also knows what /sys does not show (containers, heterogeneous cores, machines that HWLOC_XMLFILE or
// HWLOC_SYNTHETIC describe). In the library tutti_topology, so that no program but `tutti` loads hwloc; only with
// TUTTI_HWLOC.
Result<Topology> topology_from_hwloc(const CoreMask& allowed);

enum class Bind { kNone, kCore, kSocket, kNuma };
// The value of --bind; kUsage names the four words.
Result<Bind> parse_bind(std::string_view text);

// The CPUs of `ranks` ranks, each list ascending; for kNone all lists are empty. kCore cuts the cores into equal runs
// of adjacent cores, one run each (with fewer cores than ranks, adjacent ranks share one). kSocket and kNuma assign the
// ranks in runs to the sockets or NUMA nodes; a rank may use all of its own.
//
// `near`: the NUMA node of each rank's GPU, which has cores in the topology (nodes_of_ranks()); empty: bound without
// regard to GPUs. Otherwise a rank gets cores of that node alone: the ranks of a node divide its cores for kCore, and
// kSocket and kNuma give each all cores of that socket or node.
std::vector<std::vector<int>> bind_ranks(const Topology& topology, Bind bind, int ranks,
                                         const std::vector<int>& near = {});

// The cores per rank on the fullest socket or NUMA node, at least 1: how many threads a rank should start.
int cores_of_a_rank(const Topology& topology, Bind bind, int ranks, const std::vector<int>& near = {});

}  // namespace tutti::launch
