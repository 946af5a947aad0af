#pragma once
// What the system says about a process and about the memory it may use (/proc, cgroups).
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::launch {

struct ProcessInfo {
  char state = '?';                 // as in /proc/PID/stat: R, S, D, T, t, Z; '?': there is no such process
  std::uint64_t resident = 0;       // bytes of memory, now
  std::uint64_t most_resident = 0;  // peak so far
  std::uint64_t handled = 0;        // set of the signals that it catches or ignores: bit S-1 for signal S

  bool handles(int signal) const { return (handled >> (signal - 1) & 1) != 0; }
};
ProcessInfo process_info(pid_t pid);
// Seconds of processor time used by all its threads; 0: there is no such process.
double processor_seconds(pid_t pid);
// From the text of /proc/PID/stat.
double parse_processor_seconds(const std::string& text, long ticks_a_second);
// From the text of /proc/PID/status.
ProcessInfo parse_process_status(const std::string& text);

// What the threads of a process wait for in the kernel, as far as /proc says: "thread 812 (train): S, in
// futex_do_wait"
std::vector<std::string> kernel_waits(pid_t pid);

// The folders of this process's cgroup and its parents, up to `mount`, where cgroups are mounted. `self_cgroup` is the
// text of /proc/self/cgroup. A container may not show the folder of the group itself.
struct CgroupFolder {
  std::string path;  // ends with '/'
  bool v2 = true;
  bool own = false;  // the group itself, not a parent
};
std::vector<CgroupFolder> cgroup_folders(const std::string& self_cgroup, const std::string& mount,
                                         const std::string& controller);

// The memory of this process's cgroup (v1 or v2): the nearest limit on the way to the root.
struct CgroupMemory {
  std::uint64_t used = 0, most_used = 0;  // bytes; 0: not known
  std::uint64_t limit = 0;                // 0: none
  std::int64_t kills = 0;                 // out_of_memory_kills()
};
CgroupMemory cgroup_memory(const std::string& self_cgroup, const std::string& mount);
CgroupMemory cgroup_memory();

// How many processes the kernel's out-of-memory killer has killed in the cgroup of this process so far; 0 where the
// system does not say. waitpid() cannot tell such a rank from one that was killed by hand.
std::int64_t out_of_memory_kills(const std::string& self_cgroup, const std::string& mount);
std::int64_t out_of_memory_kills();

}  // namespace tutti::launch
