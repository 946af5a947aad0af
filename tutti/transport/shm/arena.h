#pragma once
// One rank's memory that its peers on the same host can read and write: a memfd, never a name in /dev/shm, so nothing
// can leak and no container limit bites. It grows at its end, is sealed against shrinking, and is prefaulted as it
// grows: every page that it counts as its own exists, so no access can end in SIGBUS. Not inherited by fork, not in
// core dumps.
//
// Each side maps the whole reserved range once; pages that the owner adds later appear in the peers' mappings by
// themselves. Places are named by their offset.
// Threads: grow() and size() by one at a time; base(), reserved() and contains() never change and are for any.
#include <cstddef>

#include "tutti/base/fd.h"

namespace tutti::transport {

class Arena {
 public:
  // Reserves address space only; reserve_bytes is rounded up to huge pages.
  static Result<Arena> create(std::size_t reserve_bytes);
  // The arena of a peer, from its descriptor and its reserved(). kMismatch: it is no arena, could shrink under its
  // readers, or has fewer than `least` bytes.
  static Result<Arena> map(Fd fd, std::size_t reserve_bytes, std::size_t least = 0);

  int fd() const { return fd_.get(); }
  std::byte* base() const { return mapping_.data(); }
  std::size_t reserved() const { return mapping_.size(); }
  bool contains(const void* p) const { return p >= base() && p < base() + reserved(); }

  // Adds at least `bytes` zeroed bytes at the end; the offset of the first. kLimit when the machine has no more memory
  // or the reserve is used up: nothing has been taken then, and smaller pieces may still be had.
  Result<std::size_t> grow(std::size_t bytes);
  std::size_t size() const { return size_; }

 private:
  static Result<Arena> reserve(Fd fd, std::size_t reserve_bytes);

  Fd fd_;
  Mapping mapping_;
  std::size_t size_ = 0;
  std::size_t file_size_ = 0;  // more than size_ after a grow() that failed: a sealed file does not shrink
};

// What one of `local_ranks` ranks reserves by default: as much as the machine has memory, but all of
// them together only a part of a process's address space (128 TiB), for each process maps them all.
std::size_t default_reserve(std::size_t machine_memory, int local_ranks);

}  // namespace tutti::transport
