#include "tutti/launch/affinity/gpu_nodes.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

namespace fs = std::filesystem;

struct Gpu {
  std::string address;  // "0000:17:00.0"
  std::string uuid;     // "GPU-8f2a..."
};

// The value of a line "NAME: VALUE" in the driver's description of a GPU; empty if there is no such line.
std::string value_in(const fs::path& file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && trim(std::string_view(line).substr(0, colon)) == name)
      return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

// The GPUs that this process may open, by PCI address. A container has device files for some of the GPUs of its host.
std::vector<Gpu> gpus_of(const std::string& root) {
  std::vector<Gpu> gpus;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root + "/proc/driver/nvidia/gpus", none)) {
    const fs::path description = entry.path() / "information";
    const std::string minor = value_in(description, "Device Minor");
    if (minor.empty() || !fs::exists(root + "/dev/nvidia" + minor, none)) continue;
    std::string address = entry.path().filename();
    std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
    gpus.push_back({.address = std::move(address), .uuid = value_in(description, "GPU UUID")});
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) { return a.address < b.address; });
  return gpus;
}

// The only GPU that a name means.
std::optional<Gpu> find_gpu(const std::vector<Gpu>& gpus, const std::string& name) {
  if (const auto number = parse_int(name)) {
    if (*number < 0 || std::size_t(*number) >= gpus.size()) return std::nullopt;
    return gpus[std::size_t(*number)];
  }
  if (!name.starts_with("GPU-")) return std::nullopt;
  std::optional<Gpu> found;
  for (const Gpu& gpu : gpus) {
    if (!gpu.uuid.starts_with(name)) continue;
    if (found) return std::nullopt;
    found = gpu;
  }
  return found;
}

// None if the firmware does not say: the kernel then has -1.
std::optional<int> numa_node_of(const std::string& root, const std::string& address) {
  std::ifstream file(root + "/sys/bus/pci/devices/" + address + "/numa_node");
  std::string line;
  std::getline(file, line);
  const auto node = parse_int(trim(line));
  return node && *node >= 0 ? std::optional(int(*node)) : std::nullopt;
}

}  // namespace

GpuNodes numa_nodes_of_gpus(const std::vector<std::string>& visible, const std::string& root) {
  GpuNodes nodes;
  const std::vector<Gpu> gpus = gpus_of(root);
  for (const std::string& name : visible) {
    const auto gpu = find_gpu(gpus, name);
    const auto node = gpu ? numa_node_of(root, gpu->address) : std::nullopt;
    if (node) nodes[name] = *node;
  }
  return nodes;
}

std::vector<int> nodes_of_ranks(const std::vector<std::string>& gpus, const GpuNodes& nodes, const Topology& topology,
                                int ranks) {
  std::vector<int> of_ranks;
  for (int rank = 0; rank < ranks && !gpus.empty(); ++rank) {
    const auto node = nodes.find(gpus[std::size_t(rank) % gpus.size()]);
    const auto is_there = [&](const Core& core) { return core.numa == node->second; };
    if (node == nodes.end() || std::none_of(topology.begin(), topology.end(), is_there)) return {};
    of_ranks.push_back(node->second);
  }
  return of_ranks;
}

}  // namespace tutti::launch
