#pragma once
// The NUMA nodes of GPUs, without CUDA, which would take a second and memory on each GPU.
#include <map>
#include <string>
#include <vector>

#include "tutti/launch/affinity/binding.h"

namespace tutti::launch {

// By the names that CUDA_VISIBLE_DEVICES has for GPUs. A GPU whose node is not known is absent.
using GpuNodes = std::map<std::string, int>;

// The nodes of the GPUs `visible`, which are numbers or UUIDs that begin with "GPU-" and may be cut short. The driver
// lists its GPUs in proc/driver/nvidia/gpus, and the kernel has the node of each in sys/bus/pci/devices, both below
// `root`. Numbers count the GPUs that have a device file in the order of the PCI bus, which is CUDA's order unless
// GPUs differ in speed.
GpuNodes numa_nodes_of_gpus(const std::vector<std::string>& visible, const std::string& root = "");

// The node of each rank's GPU, for bind_ranks(): rank r computes on number r % size of `gpus`. Empty if there is no
// GPU, or if the node of a rank's GPU is not known or has no core of the topology.
std::vector<int> nodes_of_ranks(const std::vector<std::string>& gpus, const GpuNodes& nodes, const Topology& topology,
                                int ranks);

}  // namespace tutti::launch
