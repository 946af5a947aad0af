#pragma once
// How many cores this process may really use, for whoever decides on a number of threads or whether to spin.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The affinity mask, cut by the cgroup's CPU quota (v1 or v2), at least 1. Reads a few files: not for an inner loop.
int usable_cores();
// Cores as a set: bit c % 64 of word c / 64 is core c.
using CoreMask = std::vector<std::uint64_t>;
// Where the calling thread may run: the affinity mask alone.
CoreMask allowed_cores();
int count_of(const CoreMask& cores);
// The set of these cores, as small as can hold them; empty for none.
CoreMask mask_of(std::span<const int> cores);
// The quota alone, of this process.
std::optional<int> cgroup_cores();
// The same, in whole cores rounded up; none without a quota. `self_cgroup` is the text of /proc/self/cgroup
// and `mount` the folder where cgroups are mounted.
std::optional<int> cgroup_cores(const std::string& self_cgroup, const std::string& mount);

}  // namespace tutti
