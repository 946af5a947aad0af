#include "tutti/base/machine.h"

#include <elf.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "tutti/base/text.h"

namespace tutti {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

std::string boot_id() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(boot, id) ? id : host_name();  // for example a chroot without /proc
}

std::string machine_id() {
  std::string id = boot_id();
  struct stat net {};
  if (::stat("/proc/self/ns/net", &net) == 0) id += "/" + std::to_string(net.st_ino);
  return id;
}

// More threads than cores only take turns. Two settings limit the cores: the affinity mask (taskset, Slurm, a cpuset),
// and the CPU quota of a cgroup. The quota does not change the mask: a container with two of 64 cores sees all 64.

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

// The smallest quota from a cgroup up to the root of its mount. The root is read even if the path does not exist in
// this mount, as in a container without its own cgroup namespace.
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
  // If the machine has more cores than the mask has bits, the kernel returns EINVAL, so larger masks are tried.
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

std::vector<std::string> visible_gpus(const Environment& environment, const std::string& devices) {
  std::vector<std::string> gpus;
  if (const auto listed = environment.find("CUDA_VISIBLE_DEVICES"); listed != environment.end()) {
    for (const std::string& entry : split(listed->second, ',')) {
      const std::string_view name = trim(entry);
      if (name.empty() || name.starts_with('-')) break;  // CUDA stops at the first invalid entry
      gpus.emplace_back(name);
    }
    return gpus;
  }
  glob_t found{};
  const std::size_t count = ::glob((devices + "/nvidia[0-9]*").c_str(), 0, nullptr, &found) == 0 ? found.gl_pathc : 0;
  ::globfree(&found);
  for (std::size_t i = 0; i < count; ++i) gpus.push_back(std::to_string(i));
  return gpus;
}

namespace {

// A line of /proc/PID/status, after its name; empty if there is no such process.
std::string status_line(pid_t pid, std::string_view name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::string(trim(std::string_view(line).substr(name.size())));
  return "";
}

}  // namespace

bool is_suspended(pid_t pid) {
  const std::string state = status_line(pid, "State:");
  if (!state.starts_with('t')) return state.starts_with('T');
  const auto debugger = parse_int(status_line(pid, "TracerPid:"));
  if (!debugger) return true;
  const std::string parent = status_line(pid_t(*debugger), "PPid:");
  return parent != std::to_string(::getpid()) && parent != std::to_string(pid);
}

namespace {

// dl_iterate_phdr reports the program itself first.
int find_note(dl_phdr_info* info, std::size_t, void* result) {
  auto& id = *static_cast<std::string*>(result);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* const end = at + segment.p_memsz;
    const auto padded = [](std::size_t size) { return (size + 3) & ~std::size_t(3); };
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* const name = at + sizeof note;
      const char* const content = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        for (std::size_t b = 0; b < note.n_descsz; ++b) {
          const auto byte = static_cast<unsigned char>(content[b]);
          id += "0123456789abcdef"[byte >> 4];
          id += "0123456789abcdef"[byte & 15];
        }
      at = content + padded(note.n_descsz);
    }
  }
  return 1;
}

}  // namespace

std::string program_build() {
  std::string id;
  ::dl_iterate_phdr(find_note, &id);
  struct stat file {};
  if (id.empty() && ::stat("/proc/self/exe", &file) == 0) id = std::to_string(file.st_size) + " bytes";
  return id;
}

std::string program_name() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "a program";
  const std::string text(path, std::size_t(size));
  return text.substr(text.rfind('/') + 1);
}

}  // namespace tutti
