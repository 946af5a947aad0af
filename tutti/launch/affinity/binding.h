#pragma once
// Which hardware threads each rank of a host may run on: pure arithmetic over a Topology.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/launch/affinity/topology.h"

namespace tutti {

enum class Bind { kNone, kCore, kSocket, kNuma };
// What --bind said; kUsage names the four words.
Result<Bind> parse_bind(std::string_view text);

// The CPUs of `ranks` ranks, each list ascending; for kNone all lists are empty. kCore cuts the cores into equal runs
// of neighbours, one each (fewer cores than ranks: neighbours share one). kSocket and kNuma deal the ranks in runs over
// the sockets or NUMA nodes; a rank may use the whole of its own.
std::vector<std::vector<int>> bind_ranks(const Topology& topology, Bind bind, int ranks);

// Cores that a rank of the fullest place has for itself, at least 1: how many threads it should start.
int cores_of_a_rank(const Topology& topology, Bind bind, int ranks);

}  // namespace tutti
