#pragma once
// Reusable resources of staged calls: pinned memory, which GPUs access without the CPU, and streams. Both are too slow
// to create for every call.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/comm/heap.h"

namespace tutti::cuda {

// Pinned memory. It comes from the rank's heap if possible: peers on this host can read the heap, so a collective on it
// copies nothing. If there is no heap, or its memory cannot be pinned, it comes from CUDA.
struct Pinned {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool from_heap = false;
  std::size_t offset = 0;  // in the heap
};

// Thread-safe. Returns memory to the system only when it is destroyed.
class Pool {
 public:
  Pool(const Runtime& runtime, comm::Heap* heap) : runtime_(runtime), heap_(heap) {}
  ~Pool();
  Pool(const Pool&) = delete;

  // At least `bytes`: a power of two from 64 KiB. The device that is to use the memory is current.
  Result<Pinned> take(std::size_t bytes);
  void give_back(Pinned memory);
  Result<void*> take_stream(int device);  // `device` must be current
  void give_back_stream(int device, void* stream);

 private:
  const Runtime& runtime_;
  comm::Heap* const heap_;
  Mutex mutex_;
  std::multimap<std::size_t, Pinned> free_ TUTTI_GUARDED_BY(mutex_);  // by size
  std::vector<std::pair<int, void*>> streams_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::cuda
