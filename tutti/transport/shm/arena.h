#pragma once
// One rank's memory that its peers on the same host can read and write: a memfd, never a name in /dev/shm, so nothing
// can leak and no container limit bites. It grows at its end, is sealed against shrinking, and is prefaulted as it
// grows: every page that it counts as its own exists, so no access can end in SIGBUS. Not inherited by fork, not in
// core dumps.
//
// Each side maps the whole reserved range once; pages that the owner adds later appear in the peers' mappings by
// themselves. Places are named by their offset.
// Threads: grow() and add() by one at a time; reading base() and size() by any.
#include <atomic>
#include <cstddef>

#include "tutti/base/fd.h"

namespace tutti {

class Arena {
 public:
  // Reserves address space only. reserve_bytes is rounded up to pages; as a limit it should be the memory of the
  // machine.
  static Result<Arena> create(std::size_t reserve_bytes);
  // The arena of a peer, from its descriptor.
  static Result<Arena> map(Fd fd, std::size_t reserve_bytes);

  int fd() const { return fd_.get(); }
  std::byte* base() const { return mapping_.data(); }
  std::size_t reserved() const { return mapping_.size(); }
  bool contains(const void* p) const { return p >= base() && p < base() + reserved(); }

  // Adds at least `bytes` zeroed bytes at the end; the offset of the first. kLimit when the machine has no more memory.
  Result<std::size_t> grow(std::size_t bytes);
  std::size_t size() const { return size_; }

 private:
  Fd fd_;
  Mapping mapping_;
  std::size_t size_ = 0;
};

}  // namespace tutti
