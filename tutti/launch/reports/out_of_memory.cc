// A rank that is out of memory dies of a bare SIGKILL, as from anybody's kill -9. The cgroup's counter tells the two
// apart: `oom_kill N` in memory.events (v2, also in the root of a container's own namespace) or in memory.oom_control
// (v1).
#include "tutti/launch/reports/out_of_memory.h"

#include <fstream>
#include <sstream>

#include "tutti/base/text.h"

namespace tutti {
namespace {

std::int64_t counter_in(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

}  // namespace

std::int64_t out_of_memory_kills(const std::string& self_cgroup, const std::string& mount) {
  std::int64_t kills = 0;
  for (const std::string& line : split(self_cgroup, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::string path = parts[2] == "/" ? std::string() : parts[2];
    if (parts[1].empty()) kills += counter_in(mount + path + "/memory.events");
    if (parts[1] == "memory") kills += counter_in(mount + "/memory" + path + "/memory.oom_control");
  }
  return kills;
}

std::int64_t out_of_memory_kills() {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream text;
  text << file.rdbuf();
  return out_of_memory_kills(text.str(), "/sys/fs/cgroup");
}

}  // namespace tutti
