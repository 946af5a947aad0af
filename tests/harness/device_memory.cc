#include "tests/harness/device_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/text.h"
#include "tutti/comm/cuda/library.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/comm/layout.h"

namespace tutti::test {
namespace {

const cuda::Runtime& runtime_on(int device) { return *cuda::runtime_with(device).or_throw(); }

void wait_for(const cuda::Runtime& r, void* stream) {
  cuda::Event event = cuda::Event::make(r).or_throw();
  event.record(stream).or_throw();
  for (const auto deadline = Deadline::after_seconds(60); !event.has_passed().or_throw();) {
    deadline.expired() ? throw Exception(deadline.error("a GPU does not finish")) : std::this_thread::yield();
  }
}

}  // namespace

int device_of(const Group& world) {
  const std::string text = world.device();
  const auto number = text.starts_with("cuda:") ? parse_int(text.substr(5)) : std::nullopt;
  TUTTI_REQUIRE(number, "no GPU is visible: this rank computes on ", text);
  return int(*number);
}

StreamGate::StreamGate(int device, void* stream, std::atomic<bool>& go) : go_(go) {
  const cuda::Runtime& r = runtime_on(device);
  const cuda::OnDevice current(r, device);
  constexpr const char* kFiles[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
  void* const library =
      cuda::find_library({.called = "the CUDA runtime", .files = kFiles, .symbol = "cudaLaunchHostFunc"}).or_throw();
  const auto launch = reinterpret_cast<int (*)(void*, void (*)(void*), void*)>(::dlsym(library, "cudaLaunchHostFunc"));
  TUTTI_REQUIRE(launch, "the CUDA runtime has no cudaLaunchHostFunc");
  const auto hold = [](void* data) {
    auto& gate = *static_cast<StreamGate*>(data);
    gate.go_.wait(false);
    gate.passed_ = true;
    gate.passed_.notify_all();
  };
  r.check(launch(stream, hold, this), "hold a stream").or_throw();
}

StreamGate::~StreamGate() {
  go_ = true;
  go_.notify_all();
  passed_.wait(false);
}

void* stream_of(int device) {
  static std::map<int, void*> streams;
  void*& stream = streams[device];
  const cuda::Runtime& r = runtime_on(device);
  const cuda::OnDevice current(r, device);
  if (!stream) r.check(r.cudaStreamCreateWithFlags(&stream, cuda::kNonBlocking), "make a stream").or_throw();
  return stream;
}

DeviceMemory::DeviceMemory(int device, std::size_t bytes) : device_(device) {
  const cuda::Runtime& r = runtime_on(device);
  const cuda::OnDevice current(r, device);
  void *data = nullptr, *pinned = nullptr;
  r.check(r.cudaMalloc(&data, std::max<std::size_t>(bytes, 1)), "allocate").or_throw();
  data_ = static_cast<std::byte*>(data);
  r.check(r.cudaHostAlloc(&pinned, std::max<std::size_t>(bytes, 1), 0), "pin memory").or_throw();
  pinned_ = static_cast<std::byte*>(pinned);
}

DeviceMemory::~DeviceMemory() {
  const cuda::Runtime& r = runtime_on(device_);
  const cuda::OnDevice current(r, device_);
  r.cudaFree(data_);
  r.cudaFreeHost(pinned_);
}

void DeviceMemory::upload(const void* from, std::size_t bytes, void* stream) {
  const cuda::Runtime& r = runtime_on(device_);
  const cuda::OnDevice current(r, device_);
  if (bytes > 0) std::memcpy(pinned_, from, bytes);
  r.check(r.cudaMemcpyAsync(data_, pinned_, bytes, cuda::kAnyDirection, stream), "copy").or_throw();
}

void DeviceMemory::download(void* to, std::size_t bytes) const {
  const cuda::Runtime& r = runtime_on(device_);
  const cuda::OnDevice current(r, device_);
  void* const stream = stream_of(device_);
  r.check(r.cudaMemcpyAsync(pinned_, data_, bytes, cuda::kAnyDirection, stream), "copy").or_throw();
  wait_for(r, stream);
  if (bytes > 0) std::memcpy(to, pinned_, bytes);
}

Status run_on_device(const Group& world, const Request& request) {
  const int device = device_of(world);
  void* const stream = stream_of(device);
  const auto extent = comm::extent_of(request, world.rank(), world.size());
  TUTTI_REQUIRE(extent, "too many elements");
  const std::size_t element = size_of(request.dtype);
  auto* const in = static_cast<std::byte*>(const_cast<void*>(request.in));
  auto* const out = static_cast<std::byte*>(request.out);
  const std::size_t in_bytes = extent->in * element, out_bytes = extent->out * element;
  const bool together = in && out && in < out + out_bytes && out < in + in_bytes;
  Request on_device = request;
  on_device.device = device;
  on_device.stream = stream;
  if (together || in == out) {
    std::byte* const begin = std::min(in, out);
    const std::size_t bytes = std::size_t(std::max(in + in_bytes, out + out_bytes) - begin);
    DeviceMemory memory(device, bytes);
    memory.upload(begin, bytes, stream);
    on_device.in = in ? memory.data() + (in - begin) : nullptr;
    on_device.out = out ? memory.data() + (out - begin) : nullptr;
    TUTTI_TRY(world.run(on_device));
    memory.download(begin, bytes);
    return {};
  }
  DeviceMemory from(device, in_bytes), to(device, out_bytes);
  from.upload(in, in_bytes, stream);
  to.upload(out, out_bytes, stream);
  on_device.in = in ? from.data() : nullptr;
  on_device.out = out ? to.data() : nullptr;
  TUTTI_TRY(world.run(on_device));
  to.download(out, out_bytes);
  return {};
}

}  // namespace tutti::test
