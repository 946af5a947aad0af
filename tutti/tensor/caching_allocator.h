#pragma once
// Memory for LibTorch's CPU tensors that is kept and reused. First touch of fresh pages costs more than most operators,
// so a training step should not allocate fresh large memory. With HeapTensors, large tensors are made in memory that
// the peers of this host can read, so that collectives on them copy nothing.
#include <cstddef>
#include <functional>
#include <memory>

#include "tutti/base/error.h"

namespace tutti {

class Group;

struct CachingAllocatorOptions {
  // Idle memory above this is freed. 0 keeps nothing.
  std::size_t max_idle_bytes = std::size_t(-1);
};

// Makes LibTorch take CPU memory from the caching allocator, for the rest of the process. A second call only sets the
// options. Blocks of less than 64 KiB come from malloc and are not kept. Existing tensors stay as they are. Any thread.
// If no memory is left, making a tensor throws an Exception (kLimit) with the size that was asked for. After fork() the
// child has a working allocator, but must not touch large tensors of its parent that are in the heap.
void install_caching_allocator(CachingAllocatorOptions options = {});

// While this object exists, large CPU tensors are made in the memory of `group` (Group::allocate), or, if that is
// exhausted, in private memory. Where no host has two ranks of `group`, they stay in private memory, which the system
// may back with huge pages. Installs the allocator. Tensors may outlive it. Of nested objects the newest counts.
class HeapTensors {
 public:
  using Source = std::function<Result<std::shared_ptr<std::byte>>(std::size_t bytes)>;  // 64-byte aligned
  explicit HeapTensors(const Group& group);
  explicit HeapTensors(Source source);
  ~HeapTensors();
  HeapTensors(const HeapTensors&) = delete;
  HeapTensors& operator=(const HeapTensors&) = delete;

 private:
  std::shared_ptr<const Source> source_;
};

struct CachingAllocatorStats {
  std::size_t live_bytes = 0;    // of large blocks in tensors
  std::size_t idle_bytes = 0;    // kept
  std::size_t heap_bytes = 0;    // of both, in a heap
  std::size_t fresh_blocks = 0;  // large allocations that found nothing idle
  std::size_t reused_blocks = 0;
};
CachingAllocatorStats caching_allocator_stats();

// Frees all idle memory.
void release_idle_tensor_memory();

}  // namespace tutti
