#pragma once
// The topology as hwloc sees it: also where /sys is not all there is to know (containers, heterogeneous cores, machines
// that HWLOC_XMLFILE or HWLOC_SYNTHETIC describe). A library of its own, so that no program but `tutti` loads hwloc.
#include "tutti/launch/affinity/topology.h"

namespace tutti {

Result<Topology> topology_from_hwloc(const CoreMask& allowed);

}  // namespace tutti
