// LibTorch has one interface to the streams of whatever device it was built for, so nothing of CUDA is included or
// linked here, and the same tutti serves a LibTorch with CUDA and one without.
#include "tutti/tensor/tensor_place.h"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/tensor/device_adder.h"

namespace tutti {
namespace {

constexpr Duration kPatience = std::chrono::minutes(10);

template <class Stream>
constexpr bool kShowsHandle = requires(const Stream& stream) {
  stream.native_handle();
};

// A template, so that what this LibTorch lacks is not looked up.
template <class Guard, class Stream>
void* handle_of(const Guard& guard, const Stream& stream) {
  if constexpr (kShowsHandle<Stream>) {
    return stream.native_handle();
  } else {
    for (const auto deadline = Deadline::after(kPatience); !guard.queryStream(stream);) {
      if (deadline.expired()) throw Exception(deadline.error("the current stream of the GPU does not come to its end"));
      std::this_thread::yield();
    }
    return nullptr;  // nothing is left to wait for
  }
}

}  // namespace

bool streams_are_shown() { return kShowsHandle<c10::Stream>; }

TensorPlace place_of(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return {};
  use_torch_adder();
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  return {.device = tensor.device().index(), .stream = handle_of(guard, guard.getStream(tensor.device()))};
}

}  // namespace tutti
