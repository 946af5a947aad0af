// A core's id is unique in its socket only, so (socket, core id) names it. A kernel without NUMA has no node folders;
// all cores are then on node 0.
//
// Ranks that communicate most are adjacent in rank order, so adjacent ranks get adjacent cores: every policy assigns in
// runs, never round robin. Cutting n things into p runs by floor(i * n / p) gives runs that differ by one at most.
//
// Where ranks compute on GPUs, a rank's own traffic with its GPU matters more: the GPU chooses the NUMA node, and the
// ranks of a node are assigned in runs there.
#include "tutti/launch/affinity/binding.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "tutti/base/text.h"

namespace tutti::launch {
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

// The half-open run of `things` for part `i` of `parts`; never empty.
std::pair<int, int> run_of(int things, int i, int parts) {
  const int begin = int(std::int64_t(i) * things / parts);
  const int end = int(std::int64_t(i + 1) * things / parts);
  return {begin, std::max(end, begin + 1)};
}

// The cores of each socket or NUMA node, in the order of the topology.
std::vector<Topology> groups_of(const Topology& topology, bool by_socket) {
  std::vector<Topology> groups;
  std::map<int, std::size_t> at;
  for (const Core& core : topology) {
    const auto [found, is_new] = at.emplace(by_socket ? core.socket : core.numa, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(core);
  }
  return groups;
}

// Groups of cores, each with its ranks, ascending. A rank runs on a part of its group (kCore), or on all of it.
struct Placement {
  std::vector<Topology> groups;
  std::vector<std::vector<int>> ranks;  // by group
};

Placement place(const Topology& topology, Bind bind, int ranks, const std::vector<int>& near) {
  Placement placement;
  if (bind == Bind::kCore && near.empty())
    placement.groups = {topology};
  else
    placement.groups = groups_of(topology, bind == Bind::kSocket);
  const std::vector<Topology>& groups = placement.groups;
  placement.ranks.resize(groups.size());
  for (int rank = 0; rank < ranks; ++rank) {
    std::size_t group = std::size_t(std::int64_t(rank) * std::int64_t(groups.size()) / ranks);
    if (!near.empty()) {
      const auto is_near = [&](const Core& core) { return core.numa == near[std::size_t(rank)]; };
      const auto has_node = [&](const Topology& cores) { return std::any_of(cores.begin(), cores.end(), is_near); };
      group = std::size_t(std::find_if(groups.begin(), groups.end(), has_node) - groups.begin());
    }
    placement.ranks.at(group).push_back(rank);
  }
  return placement;
}

std::vector<int> cpus_of(const Core* begin, const Core* end) {
  std::vector<int> cpus;
  for (const Core* core = begin; core != end; ++core) cpus.insert(cpus.end(), core->cpus.begin(), core->cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
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
  if (cores.empty()) return Error{.code = Code::kSystem, .detail = "this process may not run on any core"};
  Topology topology;
  for (auto& [key, core] : cores) topology.push_back(std::move(core));
  return topology;
}

Result<Bind> parse_bind(std::string_view text) {
  if (text == "none") return Bind::kNone;
  if (text == "core") return Bind::kCore;
  if (text == "socket") return Bind::kSocket;
  if (text == "numa") return Bind::kNuma;
  return Error{.code = Code::kUsage,
               .detail = "--bind needs core, socket, numa or none, not '" + std::string(text) + "'",
               .hint = "core: each rank its own cores; socket, numa: all cores of one; none: any core"};
}

std::vector<std::vector<int>> bind_ranks(const Topology& topology, Bind bind, int ranks, const std::vector<int>& near) {
  std::vector<std::vector<int>> bound{std::size_t(ranks)};
  if (bind == Bind::kNone) return bound;
  const Placement placement = place(topology, bind, ranks, near);
  for (std::size_t group = 0; group < placement.groups.size(); ++group) {
    const Topology& cores = placement.groups[group];
    const std::vector<int>& here = placement.ranks[group];
    for (std::size_t i = 0; i < here.size(); ++i) {
      const auto [begin, end] =
          bind == Bind::kCore ? run_of(int(cores.size()), int(i), int(here.size())) : std::pair(0, int(cores.size()));
      bound[std::size_t(here[i])] = cpus_of(cores.data() + begin, cores.data() + end);
    }
  }
  return bound;
}

int cores_of_a_rank(const Topology& topology, Bind bind, int ranks, const std::vector<int>& near) {
  if (bind == Bind::kNone) return std::max(1, int(topology.size()) / ranks);
  const Placement placement = place(topology, bind, ranks, near);
  int least = int(topology.size());
  for (std::size_t group = 0; group < placement.groups.size(); ++group)
    if (const int here = int(placement.ranks[group].size()); here > 0)
      least = std::min(least, int(placement.groups[group].size()) / here);
  return std::max(1, least);
}

}  // namespace tutti::launch
