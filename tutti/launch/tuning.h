#pragma once
// The environment variables that decide whether a rank runs at full speed, and their best values on this machine. Pure
// functions of (CPU, cores, ranks), so a test can try any machine. The launcher sets them; the runtime warns if they
// are missing.
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::launch {

// What the CPU can execute and the kernel lets it use. All false on anything but x86-64.
struct CpuFeatures {
  bool avx2 = false, fma = false;
  bool avx512f = false, avx512dq = false, avx512bw = false, avx512vl = false, avx512cd = false;
};
CpuFeatures cpu_features();

// The OPENBLAS_CORETYPE that uses this CPU without an instruction that it lacks; empty: leave OpenBLAS alone.
std::string openblas_coretype(const CpuFeatures& cpu);

// How slow OpenBLAS's kernels of this name are on this CPU: "up to 5 times slower"; empty if there are no better ones
// or the name is not known.
std::string slowness_of_kernels(std::string_view core, const CpuFeatures& cpu);

struct Setting {
  std::string name;
  std::string value;
};
// The value of a variable; none if it is not set or empty.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

// The settings for each of `local_ranks` workers of a host with `cores` usable cores.
std::vector<Setting> recommended_settings(const CpuFeatures& cpu, int cores, int local_ranks);

// The recommended settings of a rank with `cores` cores that the user has not set. `threads`: including the numbers of
// threads, unless the user has set OMP_NUM_THREADS, which OpenBLAS follows.
std::vector<Setting> missing_settings(const VariableLookup& variable, const CpuFeatures& cpu, int cores, bool threads);

// What the user's variables, which win over recommended_settings(), cost, as a clause; empty: nothing. `cores`: of a
// rank.
std::string costly_kernels(const VariableLookup& variable, const CpuFeatures& cpu);
std::string costly_threads(const VariableLookup& variable, int cores);

// kUsage: OMP_NUM_THREADS is not a number, or a list of numbers, from 1 up.
Status check_thread_count(const VariableLookup& variable);

// Makes glibc keep freed memory in a program that is about to start. A training step frees and allocates the same
// blocks again and again. Other programs should not have these settings.
std::vector<Setting> settings_that_keep_memory();
// The same for this process; blocks that are already mapped are not affected. Does nothing if the user has chosen
// thresholds.
void keep_freed_memory(const VariableLookup& variable);

// One sentence for a program that was not started by `tutti run` and would run several times slower without settings;
// or empty. `variable` looks up the environment; `openblas_core` is the kernel that the loaded OpenBLAS chose, empty if
// none is loaded.
std::string slow_start_warning(const VariableLookup& variable, const CpuFeatures& cpu, int cores, int local_ranks,
                               std::string_view openblas_core);
// The name that OpenBLAS gives the kernels it runs ("SkylakeX", "Prescott"), if this process has it loaded.
std::string loaded_openblas_core();

}  // namespace tutti::launch
