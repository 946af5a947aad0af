#pragma once
// Whether the kernel's out-of-memory killer was at work: a rank that it killed and one that somebody killed by hand
// look alike to waitpid().
#include <cstdint>
#include <string>

namespace tutti {

// How many processes the kernel's out-of-memory killer has killed in the cgroup of this process (v1 or v2) so far; 0
// where the system does not tell. `self_cgroup` is the text of /proc/self/cgroup, `mount` where cgroups are mounted.
std::int64_t out_of_memory_kills(const std::string& self_cgroup, const std::string& mount);
std::int64_t out_of_memory_kills();

}  // namespace tutti
