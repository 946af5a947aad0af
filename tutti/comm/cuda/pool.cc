#include "tutti/comm/cuda/pool.h"

#include <algorithm>
#include <bit>

namespace tutti::cuda {
namespace {

constexpr std::size_t kLeast = 64 << 10;

}  // namespace

Pool::~Pool() {
  for (const auto& [bytes, memory] : free_) {
    if (!memory.from_heap) {
      runtime_.cudaFreeHost(memory.data);
      continue;
    }
    runtime_.cudaHostUnregister(memory.data);
    heap_->release(memory.offset, bytes);
  }
  for (const auto& [device, stream] : streams_) runtime_.cudaStreamDestroy(stream);
}

Result<Pinned> Pool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeast));
  {
    MutexLock lock(mutex_);
    if (const auto found = free_.find(size); found != free_.end()) {
      const Pinned memory = found->second;
      free_.erase(found);
      return memory;
    }
  }
  Pinned memory{.bytes = size};
  if (heap_) {
    const auto offset = heap_->allocate(size);
    if (offset.ok() && runtime_.cudaHostRegister(heap_->at(*offset), size, kPortable) == 0) {
      memory.data = heap_->at(*offset);
      memory.from_heap = true;
      memory.offset = *offset;
      return memory;
    }
    if (offset.ok()) heap_->release(*offset, size);
    runtime_.cudaGetLastError();
  }
  void* data = nullptr;
  const int code = runtime_.cudaHostAlloc(&data, size, kPortable);
  if (const Status pinned = runtime_.check(code, "pin memory"); !pinned.ok()) {
    Error error = pinned.error();
    if (code == kOutOfMemory) error.hint = "pinned memory is the host's: free -h shows what is left of it";
    error.code = Code::kLimit;
    error.detail += ", of which " + std::to_string(size) + " bytes were needed to stage a call";
    return error;
  }
  memory.data = static_cast<std::byte*>(data);
  return memory;
}

void Pool::give_back(Pinned memory) {
  if (!memory.data) return;
  MutexLock lock(mutex_);
  free_.emplace(memory.bytes, memory);
}

Result<void*> Pool::take_stream(int device) {
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(streams_.begin(), streams_.end(), [&](auto& s) { return s.first == device; });
    if (found != streams_.end()) {
      void* const stream = found->second;
      streams_.erase(found);
      return stream;
    }
  }
  void* stream = nullptr;
  TUTTI_TRY(runtime_.check(runtime_.cudaStreamCreateWithFlags(&stream, kNonBlocking), "make a stream"));
  return stream;
}

void Pool::give_back_stream(int device, void* stream) {
  if (!stream) return;
  MutexLock lock(mutex_);
  streams_.emplace_back(device, stream);
}

}  // namespace tutti::cuda
