#pragma once
// The memory of one simulation. The simulator requests millions of small blocks, returns most of them, and never finds
// one in the cache. On small pages most accesses would miss the TLB, too.
#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include "tutti/base/fd.h"

namespace tutti::comm {

// Blocks of 32 bytes and more from huge pages. A returned block goes to a list for the next request of its size. The
// system gets memory back when the pool is destroyed. Not thread-safe. Throws std::bad_alloc if the system has no
// memory.
class Pool final : public std::pmr::memory_resource {
 private:
  static constexpr std::size_t kUnit = 32,
                               kSmall = 64 * kUnit;  // sizes are rounded up to units, above kSmall to powers of two

  // The upstream of the pool. It takes more at a time the more it has, from mappings once a request is worth huge
  // pages.
  class Pages final : public std::pmr::memory_resource {
    void* do_allocate(std::size_t bytes, std::size_t alignment) override;
    void do_deallocate(void* at, std::size_t bytes, std::size_t alignment) override;
    bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
    std::vector<Mapping> mappings_;
  };
  struct Free {
    Free* next;
  };

  static std::size_t rounded(std::size_t bytes);
  Free*& list_of(std::size_t rounded_bytes);

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* at, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  Pages pages_;
  std::pmr::monotonic_buffer_resource fresh_{&pages_};
  std::array<Free*, kSmall / kUnit + 64> lists_{};
};

}  // namespace tutti::comm
