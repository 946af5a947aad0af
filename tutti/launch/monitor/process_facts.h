#pragma once
// What the system knows of a process and of the memory that it may use.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct ProcessFacts {
  char state = '?';                 // as /proc/PID/stat has it: R, S, D, T, t, Z; '?': there is no such process
  std::uint64_t resident = 0;       // bytes of its memory, now
  std::uint64_t most_resident = 0;  // at most, so far
  bool catches_usr2 = false;        // SIGUSR2 does not end it
  bool is_suspended() const { return state == 'T' || state == 't'; }
};
ProcessFacts process_facts(pid_t pid);
// Seconds of processor time that all its threads have used; 0: there is no such process.
double processor_seconds(pid_t pid);
// From the text of /proc/PID/stat.
double parse_processor_seconds(const std::string& text, long ticks_a_second);
// From the text of /proc/PID/status.
ProcessFacts parse_process_status(const std::string& text);

// The memory of this process's cgroup (v1 or v2): the nearest limit on the way to the root.
struct MemoryFacts {
  std::uint64_t used = 0, most_used = 0;  // bytes; 0: not known
  std::uint64_t limit = 0;                // 0: none
  std::int64_t kills = 0;                 // processes that the out-of-memory killer has ended
};
MemoryFacts memory_facts(const std::string& self_cgroup, const std::string& mount);
MemoryFacts memory_facts();

// What the threads of a process wait for in the kernel, as far as /proc tells: "thread 812 (train): S, in
// futex_do_wait"
std::vector<std::string> kernel_waits(pid_t pid);

}  // namespace tutti
