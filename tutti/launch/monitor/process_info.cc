#include "tutti/launch/monitor/process_info.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// The number in a file; 0 for "max", and if there is none.
std::uint64_t number_in(const std::string& path) {
  const auto value = parse_int(trim(text_of(path)));
  return value && *value > 0 ? std::uint64_t(*value) : 0;
}

// v1 says "no limit" with a number that no machine has.
constexpr std::uint64_t kNoLimit = std::uint64_t(1) << 60;

// The counter `oom_kill N`.
std::int64_t oom_kills_in(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

}  // namespace

ProcessInfo parse_process_status(const std::string& text) {
  ProcessInfo info;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::uint64_t kilobytes = 0;
    if (name == "State:") {
      words >> info.state;
    } else if (name == "VmRSS:" && words >> kilobytes) {
      info.resident = kilobytes * 1024;
    } else if (name == "VmHWM:" && words >> kilobytes) {
      info.most_resident = kilobytes * 1024;
    } else if (name == "SigCgt:" || name == "SigIgn:") {
      std::uint64_t set = 0;
      if (words >> std::hex >> set) info.handled |= set;
    }
  }
  return info;
}

ProcessInfo process_info(pid_t pid) {
  return parse_process_status(text_of("/proc/" + std::to_string(pid) + "/status"));
}

// Fields 14 and 15. Field 2 is the program's name in parentheses, which may contain any character.
double parse_processor_seconds(const std::string& text, long ticks_a_second) {
  constexpr int kBefore = 11;  // fields between the name and these
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  std::istringstream words(text.substr(end_of_name + 1));
  std::string skipped;
  for (int i = 0; i < kBefore; ++i) words >> skipped;
  double user = 0, system = 0;
  return words >> user >> system ? (user + system) / double(ticks_a_second) : 0;
}

double processor_seconds(pid_t pid) {
  return parse_processor_seconds(text_of("/proc/" + std::to_string(pid) + "/stat"), ::sysconf(_SC_CLK_TCK));
}

std::vector<std::string> kernel_waits(pid_t pid) {
  constexpr std::size_t kMost = 32;
  std::vector<std::string> lines;
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    if (lines.size() == kMost) break;
    const std::string folder = task.path().string();
    const std::string name{trim(text_of(folder + "/comm"))}, where{trim(text_of(folder + "/wchan"))};
    const char state = parse_process_status(text_of(folder + "/status")).state;
    lines.push_back("thread " + task.path().filename().string() + " (" + name + "): " + state +
                    (where.empty() || where == "0" ? "" : ", in " + where));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Lines such as "4:memory:/path" (v1) and "0::/path" (v2).
std::vector<CgroupFolder> cgroup_folders(const std::string& self_cgroup, const std::string& mount,
                                         const std::string& controller) {
  std::vector<CgroupFolder> folders;
  for (const std::string& line : split(self_cgroup, '\n')) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const auto controllers = split(names, ',');
    const bool v2 = names.empty();
    if (!v2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    const std::string root = v2 ? mount : mount + "/" + controller;
    std::string path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (path == "/") path.clear();
    for (bool own = true;; own = false) {
      folders.push_back({.path = root + path + "/", .v2 = v2, .own = own});
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
  return folders;
}

CgroupMemory cgroup_memory(const std::string& self_cgroup, const std::string& mount) {
  CgroupMemory memory{.kills = out_of_memory_kills(self_cgroup, mount)};
  for (const CgroupFolder& folder : cgroup_folders(self_cgroup, mount, "memory")) {
    const std::uint64_t limit = number_in(folder.path + (folder.v2 ? "memory.max" : "memory.limit_in_bytes"));
    if (limit == 0 || limit >= kNoLimit || (memory.limit != 0 && limit >= memory.limit)) continue;
    memory.limit = limit;
    memory.used = number_in(folder.path + (folder.v2 ? "memory.current" : "memory.usage_in_bytes"));
    memory.most_used = number_in(folder.path + (folder.v2 ? "memory.peak" : "memory.max_usage_in_bytes"));
  }
  return memory;
}

CgroupMemory cgroup_memory() { return cgroup_memory(text_of("/proc/self/cgroup"), "/sys/fs/cgroup"); }

// In a container's own namespace the root of v2 has memory.events, too.
std::int64_t out_of_memory_kills(const std::string& self_cgroup, const std::string& mount) {
  std::int64_t kills = 0;
  for (const CgroupFolder& folder : cgroup_folders(self_cgroup, mount, "memory"))
    if (folder.own) kills += oom_kills_in(folder.path + (folder.v2 ? "memory.events" : "memory.oom_control"));
  return kills;
}

std::int64_t out_of_memory_kills() { return out_of_memory_kills(text_of("/proc/self/cgroup"), "/sys/fs/cgroup"); }

}  // namespace tutti::launch
