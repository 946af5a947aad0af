#pragma once
// What update.cc asks of the loops of one instruction set (update_impl.h).
#include "tutti/parallel/optim/kernels/update.h"

namespace tutti::kernels {

struct UpdateLoops {
  decltype(&tutti::apply_update) apply_update;
  decltype(&tutti::sum_of_squares) sum_of_squares;
  decltype(&tutti::scale_values) scale_values;
  decltype(&tutti::clamp_values) clamp_values;
};

namespace generic {
extern const UpdateLoops kUpdateLoops;
}
namespace avx2 {
extern const UpdateLoops kUpdateLoops;
}
namespace avx512 {
extern const UpdateLoops kUpdateLoops;
}

}  // namespace tutti::kernels
