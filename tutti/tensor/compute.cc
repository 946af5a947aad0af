// OpenBLAS picks its kernels by the CPU's model number, and takes models that it does not know for a Prescott of 2004; the choice is
// made when the library is loaded, so all that can be done here is to say so. `tutti run` sets OPENBLAS_CORETYPE in time.
#include "tutti/tensor/compute.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/comm/group.h"
#include "tutti/tensor/compat.h"

namespace tutti {
namespace {

// The kernels that the CPU could run, in OpenBLAS's words; empty where the generic ones are right.
const char* best_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return "";
}

void warn_of_slow_blas() {
  const std::string best = best_kernels();
  if (best.empty()) return;
  using CoreName = char* (*)();
  if (const auto core_name = reinterpret_cast<CoreName>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"))) {
    const std::string used = core_name();
    if (used == "Prescott" || used == "Core2" || used == "Generic") {
      log::warn(fmt::format("OpenBLAS computes with its {} kernels, about 5 times slower than this CPU can: start with tutti run, or set OPENBLAS_CORETYPE={}", used, best));
    }
  } else if (!at::hasMKL()) {
    log::warn("LibTorch runs on the reference BLAS, 13 to 60 times slower than OpenBLAS: install libopenblas0-pthread");
  }
}

}  // namespace

void prepare_compute(const Group& group) {
  static std::once_flag once;
  std::call_once(once, [&] {
    at::globalContext().setFlushDenormal(true);
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    if (!env("OMP_NUM_THREADS")) at::set_num_threads(std::max(1, int(cores) / group.local_size()));
    if (group.local_rank() == 0) warn_of_slow_blas();
  });
}

const char* torch_version() { return TORCH_VERSION; }

}  // namespace tutti
