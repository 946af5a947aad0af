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

// Of a tensor on the CPU or on a GPU. A LibTorch that does not tell its streams (before 2.6) is waited for here, ten
// minutes at most, which throws.
TensorPlace place_of(const at::Tensor& tensor);

}  // namespace tutti
