#pragma once
// Allocates from this rank's arena. Blocks of a page or more are whole pages, by best fit; free neighbours are merged.
// Smaller blocks come in size classes from slabs. Any thread.
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/transport/shm/arena.h"

namespace tutti::comm {

class Heap {
 public:
  static constexpr std::size_t kAlignment = 64;

  explicit Heap(transport::Arena& arena) : arena_(arena) {}
  // The offset in the arena of a block aligned to kAlignment, not zeroed. kLimit if the arena cannot grow enough.
  Result<std::size_t> allocate(std::size_t bytes);
  void release(std::size_t offset, std::size_t bytes);  // `bytes` as given to allocate()
  std::byte* at(std::size_t offset) const { return arena_.base() + offset; }

 private:
  Result<std::size_t> take_pages(std::size_t bytes) TUTTI_REQUIRES(mutex_);
  void add_pages(std::size_t offset, std::size_t bytes) TUTTI_REQUIRES(mutex_);  // to the free ones
  void remove_run(std::map<std::size_t, std::size_t>::iterator run) TUTTI_REQUIRES(mutex_);

  transport::Arena& arena_;
  Mutex mutex_;
  std::map<std::size_t, std::size_t> free_ TUTTI_GUARDED_BY(mutex_);  // runs of pages: offset -> bytes; no two touch
  std::set<std::pair<std::size_t, std::size_t>> free_by_size_ TUTTI_GUARDED_BY(mutex_);  // the same: (bytes, offset)
  std::map<std::size_t, std::vector<std::size_t>> small_ TUTTI_GUARDED_BY(mutex_);       // free blocks by class
};

}  // namespace tutti::comm
