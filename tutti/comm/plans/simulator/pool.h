#pragma once
// The memory of one simulation. It asks for small pieces by the million, gives back most of them and never finds one in
// the cache; on small pages it would hardly find one in the TLB either.
#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include "tutti/base/fd.h"

namespace tutti {

// Pieces of 32 bytes and more from huge pages. What is given back waits in a list for the next request of its size, and
// goes to the system with the pool. One thread. std::bad_alloc if the system has no more.
class Pool final : public std::pmr::memory_resource {
 private:
  static constexpr std::size_t kUnit = 32,
                               kSmall = 64 * kUnit;  // sizes are rounded up: by units, then to powers of two

  // Where the pool takes its memory, more at a time the more it has: from mappings, once that fills huge pages.
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

}  // namespace tutti
