#include "tutti/comm/kernels/finite.h"

#include "tutti/comm/kernels/loops.h"

namespace tutti::comm {
namespace {

const auto kStretch = kernels::widest_loops().all_finite;

}  // namespace

bool all_finite(DType dtype, const void* data, std::size_t count) {
  if (is_complex(dtype)) {
    dtype = dtype == DType::kC64 ? DType::kF32 : DType::kF64;
    count *= 2;
  }
  return kStretch(dtype, data, count);
}

}  // namespace tutti::comm
