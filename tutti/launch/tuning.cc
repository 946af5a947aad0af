// Three habits of the libraries below a trainer cost it up to five times its speed, and a variable cures each.
//
// Threads. OpenMP and OpenBLAS start one thread per core of the machine in every process, so four ranks on four cores
// run sixteen threads that spin against one another; torchrun's cure, one thread, wastes cores instead. The right
// number is cores that we may use (affinity mask and cgroup quota: a container with two of 64 cores has two) divided by
// the ranks of the host.
//
// Kernels. OpenBLAS 0.3.21 picks its kernels by CPU family, takes a family that it does not know for a Prescott of
// 2004, and then multiplies matrices with SSE3. OPENBLAS_CORETYPE overrides the choice. A kernel that the CPU lacks
// dies of SIGILL, so the choice goes by feature bits and not by names: SkylakeX needs five AVX-512 subsets, Haswell
// needs AVX2 and FMA.
//
// Memory. glibc gives large blocks back to the kernel when they are freed, so each temporary tensor faults its pages in
// anew. High thresholds keep them in the process.
#include "tutti/launch/tuning.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
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

int affinity_cores() {
  // A mask larger than 1024 cores needs a larger set: the kernel says EINVAL until it fits.
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 2) {
    cpu_set_t* const set = CPU_ALLOC(capacity);
    const std::size_t size = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(size, set);
    const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 1;
}

// Kernels that OpenBLAS falls back to on a CPU that it does not know, or that are older than AVX2.
bool is_old_kernel(std::string_view core) {
  static constexpr std::array kOld = {"Prescott",  "Core2",   "Penryn",    "Dunnington", "Nehalem", "Atom",
                                      "Athlon",    "Opteron", "Barcelona", "Bobcat",     "Katmai",  "Coppermine",
                                      "Northwood", "Nano",    "Generic",   "Sandybridge"};
  return std::any_of(kOld.begin(), kOld.end(), [&](std::string_view old) {
    return old.size() == core.size() &&
           std::equal(old.begin(), old.end(), core.begin(), [](char a, char b) { return (a | 32) == (b | 32); });
  });
}

}  // namespace

CpuFeatures cpu_features() {
  CpuFeatures cpu;
#if defined(__x86_64__)
  __builtin_cpu_init();  // the builtins also ask XGETBV whether the kernel saves the wide registers
  cpu.avx2 = __builtin_cpu_supports("avx2");
  cpu.fma = __builtin_cpu_supports("fma");
  cpu.avx512f = __builtin_cpu_supports("avx512f");
  cpu.avx512dq = __builtin_cpu_supports("avx512dq");
  cpu.avx512bw = __builtin_cpu_supports("avx512bw");
  cpu.avx512vl = __builtin_cpu_supports("avx512vl");
  cpu.avx512cd = __builtin_cpu_supports("avx512cd");
#endif
  return cpu;
}

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

int usable_cores() {
  std::ifstream file("/proc/self/cgroup");
  std::stringstream text;
  text << file.rdbuf();
  const int affinity = affinity_cores();
  return std::min(affinity, cgroup_cores(text.str(), "/sys/fs/cgroup").value_or(affinity));
}

std::string openblas_coretype(const CpuFeatures& cpu) {
  if (cpu.avx512f && cpu.avx512dq && cpu.avx512bw && cpu.avx512vl && cpu.avx512cd) return "SkylakeX";
  if (cpu.avx2 && cpu.fma) return "Haswell";
  return {};
}

std::vector<Setting> recommended_settings(const CpuFeatures& cpu, int cores, int local_ranks) {
  const std::string threads = std::to_string(std::max(1, cores / std::max(1, local_ranks)));
  std::vector<Setting> settings = {{"OMP_NUM_THREADS", threads}, {"OPENBLAS_NUM_THREADS", threads}};
  if (const std::string core = openblas_coretype(cpu); !core.empty()) settings.push_back({"OPENBLAS_CORETYPE", core});
  settings.push_back({"MALLOC_MMAP_THRESHOLD_", "2147483648"});
  settings.push_back({"MALLOC_TRIM_THRESHOLD_", "4294967296"});
  return settings;
}

std::string slow_start_warning(const std::function<std::optional<std::string>(const std::string&)>& variable,
                               const CpuFeatures& cpu, int cores, int local_ranks, std::string_view openblas_core) {
  std::string why, set;
  const auto add = [&](const std::string& reason, const std::string& name, const std::string& value) {
    why += (why.empty() ? "" : ", and ") + reason;
    set += " " + name + "=" + value;
  };
  const std::string core = openblas_coretype(cpu);
  if (is_old_kernel(openblas_core) && !core.empty() && !variable("OPENBLAS_CORETYPE")) {
    add("OpenBLAS takes this CPU for a " + std::string(openblas_core) + " (up to 5 times slower)", "OPENBLAS_CORETYPE",
        core);
  }
  if (local_ranks > 1 && cores > 1 && !variable("OMP_NUM_THREADS")) {
    add(std::to_string(local_ranks) + " ranks would start " + std::to_string(cores) + " threads each on " +
            std::to_string(cores) + " cores",
        "OMP_NUM_THREADS", std::to_string(std::max(1, cores / local_ranks)));
  }
  if (why.empty()) return {};
  return "this program was not started by `tutti run` and will be slow: " + why + "; set" + set +
         ", or start it with `tutti run`";
}

std::string loaded_openblas_core() {
  using CoreName = char* (*)();
  const auto core_name = reinterpret_cast<CoreName>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return core_name ? core_name() : std::string();
}

}  // namespace tutti
