#pragma once
// What reduce.cc hands to the loops of one instruction set (reduce_impl.h).
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

namespace generic {
void reduce(const Inputs& io);
}
namespace avx2 {
void reduce(const Inputs& io);
}
namespace avx512 {
void reduce(const Inputs& io);
}

}  // namespace tutti::kernels
