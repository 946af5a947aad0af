// What tutti run and init() say about OpenBLAS's choice of kernels is theirs; here is what only a program with LibTorch
// can know.
#include "tutti/tensor/compute.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <mutex>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/comm/group.h"
#include "tutti/launch/tuning.h"
#include "tutti/tensor/compat.h"

namespace tutti {
namespace {

void warn_of_reference_blas() {
  if (at::hasMKL() || ::dlsym(RTLD_DEFAULT, "openblas_get_corename") != nullptr) return;
  log::warn("LibTorch runs on the reference BLAS, 13 to 60 times slower than OpenBLAS: install libopenblas0-pthread");
}

}  // namespace

void prepare_compute(const Group& group) {
  at::globalContext().setFlushDenormal(true);  // a register of this thread
  static std::once_flag once;
  std::call_once(once, [&] {
    if (!env("OMP_NUM_THREADS")) at::set_num_threads(std::max(1, usable_cores() / group.local_size()));
    if (group.local_rank() == 0) warn_of_reference_blas();
  });
}

const char* torch_version() { return TORCH_VERSION; }

}  // namespace tutti
