// Chooses, once, the loops for the widest instruction set that this CPU has.
#include "tutti/parallel/optim/kernels/update.h"

#include "tutti/base/cpu_dispatch.h"
#include "tutti/parallel/optim/kernels/update_isa.h"

namespace tutti {
namespace {

const kernels::UpdateLoops& loops() {
#define TUTTI_UPDATE_LOOPS(isa) kernels::isa::kUpdateLoops
  static const kernels::UpdateLoops& chosen = TUTTI_FOR_THIS_CPU(TUTTI_UPDATE_LOOPS);
  return chosen;
#undef TUTTI_UPDATE_LOOPS
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
