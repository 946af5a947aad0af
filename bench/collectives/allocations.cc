// Memory of a program comes from two functions, which a program may replace; the others (arrays, nothrow) call these.
#include "bench/collectives/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "tutti/base/sanitizers.h"

namespace {
std::atomic<std::uint64_t> count{0};
}

std::uint64_t tutti::bench::allocations() { return count.load(std::memory_order_relaxed); }

#if !TUTTI_ASAN && !TUTTI_TSAN

void* operator new(std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  count.fetch_add(1, std::memory_order_relaxed);
  const std::size_t to = std::size_t(alignment);
  if (void* const memory = std::aligned_alloc(to, (bytes + to - 1) / to * to)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
