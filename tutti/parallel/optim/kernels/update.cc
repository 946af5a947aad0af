// Chooses, once, the loops for the widest instruction set that this CPU has.
#include "tutti/parallel/optim/kernels/update.h"

#include "tutti/parallel/optim/kernels/update_isa.h"

namespace tutti {
namespace {

const kernels::UpdateLoops& loops() {
#ifdef __x86_64__
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  static const bool middle = __builtin_cpu_supports("avx2");
  if (wide) return kernels::avx512::kUpdateLoops;
  if (middle) return kernels::avx2::kUpdateLoops;
#endif
  return kernels::generic::kUpdateLoops;
}

}  // namespace

void apply_update(const Update& update, DType dtype, void* weight, const void* gradient, void* const* state,
                  std::size_t count) {
  loops().apply_update(update, dtype, weight, gradient, state, count);
}
double sum_of_squares(DType dtype, const void* values, std::size_t count) {
  return loops().sum_of_squares(dtype, values, count);
}
void scale_values(DType dtype, void* values, double factor, std::size_t count) {
  loops().scale_values(dtype, values, factor, count);
}
void clamp_values(DType dtype, void* values, double limit, std::size_t count) {
  loops().clamp_values(dtype, values, limit, count);
}

}  // namespace tutti
