#pragma once
// Selects the instruction set, for both reduce.cc and finite.cc.
#include "tutti/base/cpu_dispatch.h"
#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti::kernels {

struct Loops {
  void (*reduce)(const Inputs& io);
  bool (*all_finite)(DType dtype, const void* data, std::size_t count);
};

// The loops for the widest instruction set of this CPU.
inline Loops widest_loops() {
#define TUTTI_REDUCE_LOOPS(isa) \
  Loops { isa::reduce, isa::all_finite }
  return TUTTI_FOR_THIS_CPU(TUTTI_REDUCE_LOOPS);
#undef TUTTI_REDUCE_LOOPS
}

}  // namespace tutti::kernels
