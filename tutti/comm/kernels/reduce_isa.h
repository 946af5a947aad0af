#pragma once
// The loops of one instruction set (reduce_impl.h, finite_impl.h), and their arguments.
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
  int divisor;                      // for kAvg only
  const double* factors = nullptr;  // for kPremulSum only; by input
  // Bypass the caches for the outputs. They have the same alignment, and from element `head` on they are aligned to a
  // line.
  bool streams = false;
  std::size_t head = 0;
};

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
