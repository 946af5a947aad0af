// Through the same few functions of the CUDA runtime as tutti's own calls, so nothing of CUDA is linked or loaded
// before somebody asks for GPU memory.
#include "bench/collectives/device_memory.h"

#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/text.h"
#include "tutti/comm/cuda/runtime.h"

namespace tutti::bench {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

const cuda::Runtime& runtime_of(int device) { return *cuda::runtime_with(device).or_throw(); }

}  // namespace

Result<std::unique_ptr<DeviceBuffers>> DeviceBuffers::make(const Group& world, std::byte* a, std::byte* b,
                                                           std::size_t bytes) {
  const std::string place = world.device();
  const auto number = place.starts_with("cuda:") ? parse_int(place.substr(5)) : std::nullopt;
  if (!number)
    return Error{.code = Code::kUnsupported,
                 .detail = "--memory cuda: no GPU is visible to rank " + std::to_string(world.rank()) +
                           ", which computes on " + place,
                 .hint = "look at nvidia-smi and CUDA_VISIBLE_DEVICES"};
  const int device = int(*number);
  const cuda::Runtime& r = *TUTTI_TRY(cuda::runtime_with(device));
  const cuda::OnDevice current(r, device);
  std::unique_ptr<DeviceBuffers> buffers(new DeviceBuffers);
  buffers->device_ = device, buffers->bytes_ = bytes;
  buffers->host_[0] = a, buffers->host_[1] = b;
  for (int i = 0; i < 2; ++i) {
    TUTTI_TRY(r.check(r.cudaMalloc(&buffers->memory_[i], bytes), "allocate buffers to measure"));
    TUTTI_TRY(r.check(r.cudaHostRegister(buffers->host_[i], bytes, cuda::kPortable), "pin the buffers of the host"));
    buffers->is_pinned_[i] = true;
  }
  return buffers;
}

DeviceBuffers::~DeviceBuffers() {
  const auto r = cuda::runtime_with(device_);
  if (!r.ok()) return;
  const cuda::OnDevice current(**r, device_);
  for (int i = 0; i < 2; ++i) {
    if (is_pinned_[i]) (*r)->cudaHostUnregister(host_[i]);
    if (memory_[i]) (*r)->cudaFree(memory_[i]);
  }
}

std::byte* DeviceBuffers::on_device(const std::byte* host) const {
  const int which = host >= host_[1] && host < host_[1] + bytes_ ? 1 : 0;
  return static_cast<std::byte*>(memory_[which]) + (host - host_[which]);
}

void DeviceBuffers::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const cuda::Runtime& r = runtime_of(device_);
  r.check(r.cudaMemcpyAsync(to, from, bytes, cuda::kAnyDirection, nullptr), "copy").or_throw();
}

void DeviceBuffers::wait() {
  cuda::Event event = cuda::Event::make(runtime_of(device_)).or_throw();
  event.record(nullptr).or_throw();
  for (const Deadline deadline = Deadline::after(kPatience); !event.has_passed().or_throw(); std::this_thread::yield())
    if (deadline.expired()) throw Exception(deadline.error("a GPU does not finish a copy"));
}

void DeviceBuffers::upload(std::size_t bytes) {
  const cuda::OnDevice current(runtime_of(device_), device_);
  for (int i = 0; i < 2; ++i) copy(static_cast<std::byte*>(memory_[i]), host_[i], bytes);
  wait();
}

void DeviceBuffers::download(std::size_t bytes) {
  const cuda::OnDevice current(runtime_of(device_), device_);
  for (int i = 0; i < 2; ++i) copy(host_[i], static_cast<std::byte*>(memory_[i]), bytes);
  wait();
}

}  // namespace tutti::bench
