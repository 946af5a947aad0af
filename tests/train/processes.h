#pragma once
// The ranks of a job, found from outside, to be killed.
#include <sys/types.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti::test {

// The processes of this program that descend from `root`.
inline std::vector<pid_t> processes_under(pid_t root, const std::string& program) {
  std::map<pid_t, pid_t> parents;
  std::map<pid_t, std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = parse_int(entry.path().filename().string());
    if (!pid) continue;
    const std::string stat = tutti::testing::read_file(entry.path().string() + "/stat");
    const auto open = stat.find('('), close = stat.rfind(')');
    if (close == std::string::npos || close + 4 > stat.size()) continue;
    names[pid_t(*pid)] = stat.substr(open + 1, close - open - 1);
    parents[pid_t(*pid)] = pid_t(std::atoi(stat.c_str() + close + 4));
  }
  std::vector<pid_t> found;
  for (const auto& [pid, name] : names) {
    if (name != program) continue;
    for (pid_t up = pid; up > 1; up = parents[up])
      if (up == root) found.push_back(pid);
  }
  return found;
}

}  // namespace tutti::test
