#pragma once
// The loops of one instruction set (reduce_impl.h, finite_impl.h), and what reduce.cc and finite.cc hand to them.
#include <cstddef>

#include "tutti/comm/request.h"

namespace tutti::kernels {

struct Inputs {
  DType dtype;
  ReduceOp op;
  const void* const* in;
  int inputs;
  void* const* out;
  int outputs;
  std::size_t count;
  int divisor;                      // kAvg only
  const double* factors = nullptr;  // kPremulSum only: by input
  // The outputs are written past the caches. They are aligned alike, and to a line from element `head` on.
  bool streams = false;
  std::size_t head = 0;
};

enum class Isa { kGeneric, kAvx2, kAvx512 };
Isa widest_isa();  // that this CPU has

namespace generic {
void reduce(const Inputs& io);
bool all_finite(DType dtype, const void* data, std::size_t count);
}  // namespace generic
namespace avx2 {
void reduce(const Inputs& io);
bool all_finite(DType dtype, const void* data, std::size_t count);
}  // namespace avx2
namespace avx512 {
void reduce(const Inputs& io);
bool all_finite(DType dtype, const void* data, std::size_t count);
}  // namespace avx512

}  // namespace tutti::kernels
