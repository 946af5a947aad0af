// Ranks that talk most are neighbours in rank order, so neighbouring ranks get neighbouring cores: every policy deals
// in runs, never round robin. Cutting n things into p runs by floor(i * n / p) gives runs that differ by one at most.
#include "tutti/launch/affinity/binding.h"

#include <algorithm>
#include <map>

#include "tutti/base/text.h"

namespace tutti {
namespace {

// The half-open run of `things` that belongs to part `i` of `parts`; never empty.
std::pair<int, int> run_of(int things, int i, int parts) {
  const int begin = int(std::int64_t(i) * things / parts);
  const int end = int(std::int64_t(i + 1) * things / parts);
  return {begin, std::max(end, begin + 1)};
}

// The cores of each socket or NUMA node, in the order of the topology.
std::vector<Topology> groups_of(const Topology& topology, Bind bind) {
  std::vector<Topology> groups;
  std::map<int, std::size_t> at;
  for (const Core& core : topology) {
    const auto [found, is_new] = at.emplace(bind == Bind::kSocket ? core.socket : core.numa, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(core);
  }
  return groups;
}

std::vector<int> cpus_of(const Core* begin, const Core* end) {
  std::vector<int> cpus;
  for (const Core* core = begin; core != end; ++core) cpus.insert(cpus.end(), core->cpus.begin(), core->cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

}  // namespace

Result<Bind> parse_bind(std::string_view text) {
  if (text == "none") return Bind::kNone;
  if (text == "core") return Bind::kCore;
  if (text == "socket") return Bind::kSocket;
  if (text == "numa") return Bind::kNuma;
  return Error{.code = Code::kUsage,
               .detail = "--bind needs core, socket, numa or none, not '" + std::string(text) + "'",
               .hint = "core: each rank its own cores; socket, numa: all cores of one; none: as the system likes"};
}

std::vector<std::vector<int>> bind_ranks(const Topology& topology, Bind bind, int ranks) {
  std::vector<std::vector<int>> bound{std::size_t(ranks)};
  if (bind == Bind::kNone) return bound;
  if (bind == Bind::kCore) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto [begin, end] = run_of(int(topology.size()), rank, ranks);
      bound[std::size_t(rank)] = cpus_of(topology.data() + begin, topology.data() + end);
    }
    return bound;
  }
  const std::vector<Topology> groups = groups_of(topology, bind);
  for (int rank = 0; rank < ranks; ++rank) {
    const Topology& group = groups[std::size_t(std::int64_t(rank) * std::int64_t(groups.size()) / ranks)];
    bound[std::size_t(rank)] = cpus_of(group.data(), group.data() + group.size());
  }
  return bound;
}

int cores_of_a_rank(const Topology& topology, Bind bind, int ranks) {
  if (bind == Bind::kNone || bind == Bind::kCore) return std::max(1, int(topology.size()) / ranks);
  const std::vector<Topology> groups = groups_of(topology, bind);
  std::vector<int> inhabitants(groups.size(), 0);
  for (int rank = 0; rank < ranks; ++rank)
    ++inhabitants[std::size_t(std::int64_t(rank) * std::int64_t(groups.size()) / ranks)];
  int least = int(topology.size());
  for (std::size_t group = 0; group < groups.size(); ++group)
    if (inhabitants[group] > 0) least = std::min(least, int(groups[group].size()) / inhabitants[group]);
  return std::max(1, least);
}

}  // namespace tutti
