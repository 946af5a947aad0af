// Five habits of the libraries below a trainer cost up to five times its speed; a variable cures each.
//
// Threads. OpenMP and OpenBLAS start one thread per core of the machine in every process, so four ranks on four cores
// run sixteen threads that spin against one another. torchrun's cure, one thread, wastes cores instead. The right
// number is the usable cores (affinity mask and cgroup quota: a container with two of 64 cores has two) divided by the
// ranks of the host.
//
// Waiting. An idle thread of GNU OpenMP spins for milliseconds before it sleeps. As soon as anything else wants a core
// (a thread that reads ahead, another job, a compiler) it takes the core from the very thread that it waits for:
// train_dlrm on one rank of two threads ran 2 times slower on a quiet machine of two cores and 10 to 20 times slower on
// a busy one. OMP_WAIT_POLICY=passive sleeps at once, and was not slower in any of the models.
//
// Kernels. OpenBLAS 0.3.21 picks its kernels by CPU family, takes an unknown family for a Prescott of 2004, and then
// multiplies matrices with SSE3. OPENBLAS_CORETYPE overrides the choice. A kernel that the CPU lacks dies of SIGILL, so
// the choice depends on feature bits and not on names: SkylakeX needs five AVX-512 subsets, Haswell needs AVX2 and FMA.
//
// Memory. glibc returns large blocks to the kernel when they are freed, so each temporary tensor faults its pages in
// again. High thresholds keep them in the process. Any other program would keep memory that it never needs again, so
// only our trainers raise the thresholds, each for itself, and `tutti run --keep-memory` for all that it starts.
//
// Pages. Where the system gives huge pages only on request (transparent_hugepage/enabled is madvise, as on Debian),
// malloc does not request them by itself. On pages of 4 KiB a matrix product spends its time on address translation:
// OpenBLAS ran 10 to 40 % faster on huge ones. glibc requests them with glibc.malloc.hugetlb=1 (2.35 and later; older
// versions ignore the setting).
#include "tutti/launch/tuning.h"

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

// Equal letters, ignoring case.
bool same_word(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return (a | 32) == (b | 32); });
}

// The vector width of kernels of this name: 0 SSE or AVX, 1 AVX2, 2 AVX-512; none: an unknown name.
std::optional<int> width_of_kernels(std::string_view core) {
  static constexpr std::array<std::pair<std::string_view, int>, 25> kKernels = {{
      {"Prescott", 0},    {"Core2", 0},      {"Penryn", 0},     {"Dunnington", 0},  {"Nehalem", 0},
      {"Atom", 0},        {"Athlon", 0},     {"Opteron", 0},    {"Barcelona", 0},   {"Bobcat", 0},
      {"Katmai", 0},      {"Coppermine", 0}, {"Northwood", 0},  {"Nano", 0},        {"Generic", 0},
      {"Sandybridge", 0}, {"Bulldozer", 0},  {"Piledriver", 0}, {"Steamroller", 0}, {"Excavator", 1},
      {"Haswell", 1},     {"Zen", 1},        {"SkylakeX", 2},   {"Cooperlake", 2},  {"SapphireRapids", 2},
  }};
  const auto* const known = std::find_if(kKernels.begin(), kKernels.end(),
                                         [&](const auto& kernels) { return same_word(kernels.first, core); });
  return known == kKernels.end() ? std::nullopt : std::optional(known->second);
}

// The number of threads that a variable asks for; none: it is not set, or is no number.
std::optional<std::int64_t> threads_of(const VariableLookup& variable, const char* name) {
  const auto given = variable(name);
  return given ? parse_int(std::string(trim(split(*given, ',').front()))) : std::nullopt;
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

std::string slowness_of_kernels(std::string_view core, const CpuFeatures& cpu) {
  const auto used = width_of_kernels(core), possible = width_of_kernels(openblas_coretype(cpu));
  if (!used || !possible || *used >= *possible) return {};
  return *used == 0 ? "up to 5 times slower" : "1.4 to 1.7 times slower";
}

std::vector<Setting> recommended_settings(const CpuFeatures& cpu, int cores, int local_ranks) {
  const std::string threads = std::to_string(std::max(1, cores / std::max(1, local_ranks)));
  std::vector<Setting> settings = {{"OMP_NUM_THREADS", threads}, {"OPENBLAS_NUM_THREADS", threads}};
  if (threads != "1") settings.push_back({"OMP_WAIT_POLICY", "passive"});
  if (const std::string core = openblas_coretype(cpu); !core.empty()) settings.push_back({"OPENBLAS_CORETYPE", core});
  settings.push_back({"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"});
  return settings;
}

std::string costly_kernels(const VariableLookup& variable, const CpuFeatures& cpu) {
  const std::string given = variable("OPENBLAS_CORETYPE").value_or("");
  const std::string slow = slowness_of_kernels(given, cpu);
  if (slow.empty()) return {};
  return "OPENBLAS_CORETYPE is " + given + ", with which matrix products are " + slow + " than with " +
         openblas_coretype(cpu);
}

std::string costly_threads(const VariableLookup& variable, int cores) {
  std::vector<std::string> costs;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    const auto threads = threads_of(variable, name);
    if (!threads || *threads == cores) continue;
    costs.push_back(std::string(name) + " is " + std::to_string(*threads) +
                    (*threads > cores ? ", more than" : ", fewer than") + " the " + std::to_string(cores) +
                    (cores == 1 ? " core" : " cores") + " of a rank");
  }
  if (cores > 1 && same_word(variable("OMP_WAIT_POLICY").value_or(""), "active"))
    costs.push_back("OMP_WAIT_POLICY is active, with which idle threads take cores from the others");
  return join(costs, "; ");
}

std::vector<Setting> missing_settings(const VariableLookup& variable, const CpuFeatures& cpu, int cores, bool threads) {
  const bool sets_threads = threads && !variable("OMP_NUM_THREADS");  // which OpenBLAS follows
  std::vector<Setting> missing;
  for (Setting& setting : recommended_settings(cpu, cores, 1))
    if (!variable(setting.name) && (sets_threads || !setting.name.ends_with("_NUM_THREADS")))
      missing.push_back(std::move(setting));
  return missing;
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
  bool tutti_run_helps = true;  // it leaves what the user has set
  const auto add = [&](const std::string& reason, const std::string& name, const std::string& value) {
    why += (why.empty() ? "" : ", and ") + reason;
    set += " " + name + "=" + value;
  };
  if (const std::string slow = slowness_of_kernels(openblas_core, cpu); !slow.empty()) {
    const auto given = variable("OPENBLAS_CORETYPE");
    tutti_run_helps = !given;
    add(given ? "OPENBLAS_CORETYPE=" + *given + " chooses kernels that are " + slow
              : "OpenBLAS takes this CPU for a " + std::string(openblas_core) + " (" + slow + ")",
        "OPENBLAS_CORETYPE", openblas_coretype(cpu));
  }
  if (local_ranks > 1 && cores > 1 && !variable("OMP_NUM_THREADS")) {
    add(std::to_string(local_ranks) + " ranks would start " + std::to_string(cores) + " threads each on " +
            std::to_string(cores) + " cores",
        "OMP_NUM_THREADS", std::to_string(std::max(1, cores / local_ranks)));
  }
  // Of several ranks each may be bound to cores of its own, and fewer threads may be meant.
  const std::string costs = local_ranks <= 1 ? costly_threads(variable, cores) : "";
  if (costs.find("more than") != std::string::npos || costs.find("OMP_WAIT_POLICY") != std::string::npos) {
    tutti_run_helps = false;
    why += (why.empty() ? "" : ", and ") + costs;
    for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
      if (threads_of(variable, name).value_or(cores) != cores)
        set += " " + std::string(name) + "=" + std::to_string(cores);
    if (costs.find("OMP_WAIT_POLICY") != std::string::npos) set += " OMP_WAIT_POLICY=passive";
  }
  if (why.empty()) return {};
  return "this program was not started by `tutti run` and will be slow: " + why + "; set" + set +
         (tutti_run_helps ? ", or start it with `tutti run`" : "");
}

std::string loaded_openblas_core() {
  using CoreName = char* (*)();
  const auto core_name = reinterpret_cast<CoreName>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return core_name ? core_name() : std::string();
}

}  // namespace tutti::launch
