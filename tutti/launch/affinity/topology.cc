// A core has an id that is unique in its socket only, so (socket, core id) names it. A kernel without NUMA has no node
// folders; all is then node 0.
#include "tutti/launch/affinity/topology.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "tutti/base/text.h"

namespace tutti {
namespace {

bool contains(const CoreMask& mask, int cpu) {
  const auto word = std::size_t(cpu) / 64;
  return word < mask.size() && (mask[word] >> (cpu % 64) & 1) != 0;
}

int number_in(const std::string& path, int otherwise) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return otherwise;
  return int(parse_int(trim(line)).value_or(otherwise));
}

// The number of a NUMA node whose folder links to this CPU.
int numa_of(const std::string& cpu_folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(cpu_folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    if (const auto number = parse_int(name.substr(4))) return int(*number);
  }
  return 0;
}

}  // namespace

Result<Topology> topology_from_sys(const CoreMask& allowed, const std::string& folder) {
  std::map<std::tuple<int, int, int>, Core> cores;  // by socket, NUMA node, core id
  for (int cpu = 0; cpu < int(allowed.size() * 64); ++cpu) {
    if (!contains(allowed, cpu)) continue;
    const std::string base = folder + "/devices/system/cpu/cpu" + std::to_string(cpu);
    const int socket = std::max(0, number_in(base + "/topology/physical_package_id", 0));
    const int id = number_in(base + "/topology/core_id", cpu);
    const int numa = numa_of(base);
    Core& core = cores[{socket, numa, id}];
    core.socket = socket;
    core.numa = numa;
    core.cpus.push_back(cpu);
  }
  if (cores.empty()) return Error{.code = Code::kSystem, .detail = "this process may run on no core at all"};
  Topology topology;
  for (auto& [place, core] : cores) topology.push_back(std::move(core));
  return topology;
}

}  // namespace tutti
