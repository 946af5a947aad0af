#pragma once
// Where a tensor's memory is, and what of LibTorch's work there comes before a call on it.
#include <cstdint>

#include "tutti/comm/request.h"

namespace at {
class Tensor;
}

namespace tutti {

struct TensorPlace {
  std::int32_t device = kHost;
  void* stream = nullptr;  // LibTorch's current one of this thread: a cudaStream_t
};

// Of a tensor on the CPU or on a GPU. A LibTorch that does not show its streams (before 2.6) is waited for here. Throws
// after ten minutes.
TensorPlace place_of(const at::Tensor& tensor);
// Whether this LibTorch shows its streams.
bool streams_are_shown();

}  // namespace tutti
