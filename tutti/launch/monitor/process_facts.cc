#include "tutti/launch/monitor/process_facts.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tutti/base/text.h"
#include "tutti/launch/reports/out_of_memory.h"

namespace tutti {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// Of a file that holds one number; 0 for "max", and where there is none.
std::uint64_t number_in(const std::string& path) {
  const auto value = parse_int(trim(text_of(path)));
  return value && *value > 0 ? std::uint64_t(*value) : 0;
}

// v1 says "no limit" with a number that no machine has.
constexpr std::uint64_t kNoLimit = std::uint64_t(1) << 60;

}  // namespace

ProcessFacts parse_process_status(const std::string& text) {
  ProcessFacts facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::uint64_t kilobytes = 0;
    if (name == "State:") {
      words >> facts.state;
    } else if (name == "VmRSS:" && words >> kilobytes) {
      facts.resident = kilobytes * 1024;
    } else if (name == "VmHWM:" && words >> kilobytes) {
      facts.most_resident = kilobytes * 1024;
    } else if (name == "SigCgt:" || name == "SigIgn:") {
      std::uint64_t set = 0;
      if (words >> std::hex >> set) facts.catches_usr2 |= (set >> (SIGUSR2 - 1) & 1) != 0;
    }
  }
  return facts;
}

ProcessFacts process_facts(pid_t pid) {
  return parse_process_status(text_of("/proc/" + std::to_string(pid) + "/status"));
}

// Fields 14 and 15; field 2 is the program's name in parentheses, with whatever characters it has.
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

MemoryFacts memory_facts(const std::string& self_cgroup, const std::string& mount) {
  MemoryFacts facts{.kills = out_of_memory_kills(self_cgroup, mount)};
  for (const std::string& line : split(self_cgroup, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const bool v2 = parts[1].empty(), v1 = parts[1] == "memory";
    if (!v1 && !v2) continue;
    const std::string root = v2 ? mount : mount + "/memory";
    for (std::string path = parts[2];; path.erase(path.rfind('/'))) {
      const std::string folder = root + (path == "/" ? "" : path) + "/";
      const std::uint64_t limit = number_in(folder + (v2 ? "memory.max" : "memory.limit_in_bytes"));
      if (limit != 0 && limit < kNoLimit && (facts.limit == 0 || limit < facts.limit)) {
        facts.limit = limit;
        facts.used = number_in(folder + (v2 ? "memory.current" : "memory.usage_in_bytes"));
        facts.most_used = number_in(folder + (v2 ? "memory.peak" : "memory.max_usage_in_bytes"));
      }
      if (path.empty() || path == "/") break;
    }
  }
  return facts;
}

MemoryFacts memory_facts() { return memory_facts(text_of("/proc/self/cgroup"), "/sys/fs/cgroup"); }

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

}  // namespace tutti
