#pragma once
// Who adds vectors on a GPU. The core has no kernels. A library with kernels registers its adder; LibTorch's is
// tensor/device_adder.h. Without an adder reductions are staged through the CPU.
#include <cstddef>
#include <memory>
#include <span>

#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti::cuda {

// out[i] = in[0][i] op in[1][i] op ..., in the order of `in`; an average is divided at the end. The bits are those of
// comm::reduce_many(): 16-bit types are combined in f32 and rounded once. All memory can be read from `device`, where
// nothing else uses it. `out` may be one of the inputs.
struct DeviceSum {
  int device = 0;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const void* const> in;
  void* out = nullptr;
  std::size_t count = 0;
};

// A sum that a GPU computes. It may be destroyed before its end.
class SumInFlight {
 public:
  virtual ~SumInFlight() = default;
  virtual Result<bool> has_ended() = 0;  // an error, too, comes once the GPU no longer uses the memory
};

struct Adder {
  bool (*adds)(DType dtype, ReduceOp op);
  Result<std::unique_ptr<SumInFlight>> (*start)(const DeviceSum& sum);  // does not wait for the GPU
};

// Any thread. The adder must live until the process ends.
void set_adder(const Adder& adder);
const Adder* adder();  // null: none is registered

}  // namespace tutti::cuda
