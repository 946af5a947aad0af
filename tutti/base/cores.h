#pragma once
// How many cores this process may really use, for whoever decides on a number of threads or whether to spin.
#include <optional>
#include <string>

namespace tutti {

// The affinity mask, cut by the cgroup's CPU quota (v1 or v2), at least 1. Reads a few files: not for an inner loop.
int usable_cores();
// The quota part alone, in whole cores rounded up; none without a quota. `self_cgroup` is the text of /proc/self/cgroup
// and `mount` the folder where cgroups are mounted.
std::optional<int> cgroup_cores(const std::string& self_cgroup, const std::string& mount);

}  // namespace tutti
