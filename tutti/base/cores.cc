// A thread more than there are cores only takes turns with the others. How many there are is told in two places: the
// affinity mask (taskset, Slurm, a cpuset), and the CPU quota of a cgroup, which leaves the mask alone: a container
// with two of 64 cores sees all 64.
#include "tutti/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

#include "tutti/base/text.h"

namespace tutti {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// Cores in one cgroup folder; none if it sets no limit.
std::optional<double> quota_of(const std::string& folder, bool unified) {
  std::string quota, period;
  if (unified) {
    const auto line = first_line(folder + "/cpu.max");  // "150000 100000" or "max 100000"
    if (!line) return std::nullopt;
    std::istringstream(*line) >> quota >> period;
  } else {
    quota = first_line(folder + "/cpu.cfs_quota_us").value_or("");
    period = first_line(folder + "/cpu.cfs_period_us").value_or("");
  }
  const auto q = parse_double(quota), p = parse_double(period);
  if (!q || !p || *q <= 0 || *p <= 0) return std::nullopt;
  return *q / *p;
}

// The least quota on the way from a cgroup up to the root of its mount; the root is read even where the path does not
// exist in this mount, as in a container without its own cgroup namespace.
std::optional<double> least_quota(const std::string& mount, std::string path, bool unified) {
  std::optional<double> least;
  for (;;) {
    const auto quota = quota_of(mount + path, unified);
    if (quota) least = std::min(quota.value(), least.value_or(*quota));
    if (path.empty()) return least;
    path.erase(path.find_last_of('/'));
  }
}

}  // namespace

std::optional<int> cgroup_cores(const std::string& self_cgroup, const std::string& mount) {
  std::optional<double> least;
  const auto consider = [&](std::optional<double> quota) {
    if (quota) least = std::min(*quota, least.value_or(*quota));
  };
  for (const std::string& line : split(self_cgroup, '\n')) {  // "4:cpu,cpuacct:/path" (v1), "0::/path" (v2)
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (!path.empty() && path[0] != '/') continue;
    if (controllers.empty()) {
      consider(least_quota(mount, path, true));
    } else {
      const auto names = split(controllers, ',');
      if (std::find(names.begin(), names.end(), "cpu") == names.end()) continue;
      consider(least_quota(mount + "/cpu", path, false));
      consider(least_quota(mount + "/" + controllers, path, false));
    }
  }
  if (!least) return std::nullopt;
  return std::max(1, int(std::ceil(std::min(*least, 1e6) - 1e-9)));
}

CoreMask allowed_cores() {
  // A machine with more cores than the mask has bits: the kernel says EINVAL until it fits.
  for (std::size_t words = 16; words <= (std::size_t(1) << 14); words *= 2) {
    CoreMask cores(words, 0);
    if (::sched_getaffinity(0, words * sizeof(std::uint64_t), reinterpret_cast<cpu_set_t*>(cores.data())) == 0)
      return cores;
  }
  return {1};
}

int count_of(const CoreMask& cores) {
  int count = 0;
  for (const auto word : cores) count += std::popcount(word);
  return count;
}

CoreMask mask_of(std::span<const int> cores) {
  CoreMask mask;
  for (const int core : cores) {
    mask.resize(std::max(mask.size(), std::size_t(core) / 64 + 1));
    mask[std::size_t(core) / 64] |= std::uint64_t(1) << (core % 64);
  }
  return mask;
}

std::optional<int> cgroup_cores() {
  std::ifstream file("/proc/self/cgroup");
  std::stringstream text;
  text << file.rdbuf();
  return cgroup_cores(text.str(), "/sys/fs/cgroup");
}

int usable_cores() {
  const int affinity = std::max(1, count_of(allowed_cores()));
  return std::min(affinity, cgroup_cores().value_or(affinity));
}

}  // namespace tutti
