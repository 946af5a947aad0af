#pragma once
// Allocates from this rank's arena: blocks of 64-byte-aligned size in power-of-two-and-a-quarter classes, kept on free
// lists and reused before the arena grows. Any thread.
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "tutti/transport/shm/arena.h"

namespace tutti {

class Heap {
 public:
  explicit Heap(Arena& arena) : arena_(arena) {}
  // Not zeroed. The offset in the arena.
  Result<std::size_t> allocate(std::size_t bytes);
  void release(std::size_t offset, std::size_t bytes);  // `bytes` as given to allocate()
  std::byte* at(std::size_t offset) const { return arena_.base() + offset; }

 private:
  static std::size_t class_size(std::size_t bytes);

  Arena& arena_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::size_t>> free_;  // by class size
  std::size_t next_ = 0, end_ = 0;                        // the unused rest of the last growth
};

}  // namespace tutti
