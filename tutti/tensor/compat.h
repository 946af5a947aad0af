#pragma once
// The one place that knows which LibTorch this is: 1.13 (Debian 12) and 2.x.
#include <c10/core/Allocator.h>
#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <utility>

namespace tutti::compat {

#define TUTTI_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// c10::Allocator::allocate() lost its const in 2.3, and copy_data() became pure virtual in 2.2. Derive from this and
// implement get().
class Allocator : public c10::Allocator {
 public:
#if TUTTI_TORCH_AT_LEAST(2, 3)
  c10::DataPtr allocate(std::size_t bytes) override { return get(bytes); }
#else
  c10::DataPtr allocate(std::size_t bytes) const override { return get(bytes); }
#endif
#if TUTTI_TORCH_AT_LEAST(2, 2)
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
#endif

 protected:
  virtual c10::DataPtr get(std::size_t bytes) const = 0;
};

// A strong hold on a parameter's AccumulateGrad node: a shared_ptr up to some 2.x, an intrusive_ptr after it.
using AccumulatorPtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

}  // namespace tutti::compat
