// Five habits of the libraries below a trainer cost it up to five times its speed, and a variable cures each.
//
// Threads. OpenMP and OpenBLAS start one thread per core of the machine in every process, so four ranks on four cores
// run sixteen threads that spin against one another; torchrun's cure, one thread, wastes cores instead. The right
// number is cores that we may use (affinity mask and cgroup quota: a container with two of 64 cores has two) divided by
// the ranks of the host.
//
// Waiting. A thread of GNU OpenMP that has nothing to do spins for milliseconds before it sleeps. As soon as anything
// else wants a core (a thread that reads ahead, another job, a compiler) it takes the core from the very thread that it
// waits for: train_dlrm on one rank of two threads ran 2 times slower on a quiet machine of two cores and 10 to 20
// times slower on a busy one. OMP_WAIT_POLICY=passive sleeps at once, and was not slower in any of the models.
//
// Kernels. OpenBLAS 0.3.21 picks its kernels by CPU family, takes a family that it does not know for a Prescott of
// 2004, and then multiplies matrices with SSE3. OPENBLAS_CORETYPE overrides the choice. A kernel that the CPU lacks
// dies of SIGILL, so the choice goes by feature bits and not by names: SkylakeX needs five AVX-512 subsets, Haswell
// needs AVX2 and FMA.
//
// Memory. glibc gives large blocks back to the kernel when they are freed, so each temporary tensor faults its pages in
// anew. High thresholds keep them in the process. Any other program would keep memory that it never needs again, so
// only our trainers raise the thresholds, each for itself, and `tutti run --keep-memory` for all that it starts.
//
// Pages. Where the system hands out huge pages to those who ask for them (transparent_hugepage/enabled is madvise, as
// Debian has it), malloc does not ask by itself. On pages of 4 KiB a matrix product spends its time on address
// translation: OpenBLAS ran 10 to 40 % faster on huge ones. glibc asks with glibc.malloc.hugetlb=1 (2.35 and later;
// older ones do not know it and go on).
#include "tutti/launch/tuning.h"

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tutti/base/text.h"

namespace tutti {
namespace {

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

std::string openblas_coretype(const CpuFeatures& cpu) {
  if (cpu.avx512f && cpu.avx512dq && cpu.avx512bw && cpu.avx512vl && cpu.avx512cd) return "SkylakeX";
  if (cpu.avx2 && cpu.fma) return "Haswell";
  return {};
}

std::vector<Setting> recommended_settings(const CpuFeatures& cpu, int cores, int local_ranks) {
  const std::string threads = std::to_string(std::max(1, cores / std::max(1, local_ranks)));
  std::vector<Setting> settings = {{"OMP_NUM_THREADS", threads}, {"OPENBLAS_NUM_THREADS", threads}};
  if (threads != "1") settings.push_back({"OMP_WAIT_POLICY", "passive"});
  if (const std::string core = openblas_coretype(cpu); !core.empty()) settings.push_back({"OPENBLAS_CORETYPE", core});
  settings.push_back({"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"});
  return settings;
}

Status check_thread_count(const VariableLookup& variable) {
  const std::string given = variable("OMP_NUM_THREADS").value_or("1");
  for (const std::string& level : split(given, ',')) {
    const auto threads = parse_int(std::string(trim(level)));
    if (!threads || *threads < 1 || *threads > std::numeric_limits<int>::max())
      return Error{.code = Code::kUsage,
                   .detail = "OMP_NUM_THREADS is \"" + given + "\", expected a number of threads from 1 up",
                   .hint = "unset it: tutti run then gives each rank its share of the cores"};
  }
  return {};
}

std::vector<Setting> settings_that_keep_memory() {
  return {{"MALLOC_MMAP_THRESHOLD_", "2147483648"}, {"MALLOC_TRIM_THRESHOLD_", "4294967296"}};
}

void keep_freed_memory(const VariableLookup& variable) {
  const std::string tunables = variable("GLIBC_TUNABLES").value_or("");
  for (const char* name : {"mmap_threshold", "trim_threshold"})
    if (tunables.find("glibc.malloc." + std::string(name)) != std::string::npos) return;
  if (variable("MALLOC_MMAP_THRESHOLD_") || variable("MALLOC_TRIM_THRESHOLD_")) return;
  ::mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TRIM_THRESHOLD, -1);  // never
}

std::string slow_start_warning(const VariableLookup& variable, const CpuFeatures& cpu, int cores, int local_ranks,
                               std::string_view openblas_core) {
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
