#include "tutti/comm/kernels/finite.h"

#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti {
namespace {

using Look = bool (*)(DType, const void*, std::size_t);

Look choose_look() {
  switch (kernels::widest_isa()) {
#ifdef __x86_64__
    case kernels::Isa::kAvx512:
      return kernels::avx512::all_finite;
    case kernels::Isa::kAvx2:
      return kernels::avx2::all_finite;
#else
    case kernels::Isa::kAvx512:
    case kernels::Isa::kAvx2:
#endif
    case kernels::Isa::kGeneric:
      break;
  }
  return kernels::generic::all_finite;
}

const Look kLook = choose_look();

}  // namespace

bool all_finite(DType dtype, const void* data, std::size_t count) {
  if (is_complex(dtype)) {
    dtype = dtype == DType::kC64 ? DType::kF32 : DType::kF64;
    count *= 2;
  }
  return kLook(dtype, data, count);
}

}  // namespace tutti
