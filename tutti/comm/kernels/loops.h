#pragma once
// Selects the instruction set, for both reduce.cc and finite.cc.
#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti::kernels {

struct Loops {
  void (*reduce)(const Inputs& io);
  bool (*all_finite)(DType dtype, const void* data, std::size_t count);
};

// The loops for the widest instruction set of this CPU.
inline Loops widest_loops() {
  switch (widest_isa()) {
#ifdef __x86_64__
    case Isa::kAvx512:
      return {avx512::reduce, avx512::all_finite};
    case Isa::kAvx2:
      return {avx2::reduce, avx2::all_finite};
#else
    case Isa::kAvx512:
    case Isa::kAvx2:
#endif
    case Isa::kGeneric:
      break;
  }
  return {generic::reduce, generic::all_finite};
}

}  // namespace tutti::kernels
