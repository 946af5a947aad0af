#pragma once
// What staged calls use and give back: pinned memory, which GPUs read and write without help of the processor, and
// streams. Both are too slow to make for every call.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/comm/heap.h"

namespace tutti::cuda {

// Pinned memory. From the rank's heap, where the peers on this host can read it, so that a collective on it copies
// nothing; else, or where such memory cannot be pinned, from CUDA.
struct Pinned {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool from_heap = false;
  std::size_t offset = 0;  // in the heap
};

// Any thread. Gives back to the system only at its end.
class Pool {
 public:
  Pool(const Runtime& runtime, Heap* heap) : runtime_(runtime), heap_(heap) {}
  ~Pool();
  Pool(const Pool&) = delete;

  // At least `bytes`: a power of two from 64 KiB. The device that is to use the memory is current.
  Result<Pinned> take(std::size_t bytes);
  void give_back(Pinned memory);
  Result<void*> take_stream(int device);  // which is current
  void give_back_stream(int device, void* stream);

 private:
  const Runtime& runtime_;
  Heap* const heap_;
  Mutex mutex_;
  std::multimap<std::size_t, Pinned> free_ TUTTI_GUARDED_BY(mutex_);  // by size
  std::vector<std::pair<int, void*>> streams_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::cuda
