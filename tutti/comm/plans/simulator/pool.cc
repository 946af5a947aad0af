#include "tutti/comm/plans/simulator/pool.h"

#include <algorithm>
#include <bit>
#include <new>

#include "tutti/base/memory.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kWorthAMapping = std::size_t(1) << 20;

}  // namespace

void* Pool::Pages::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes < kWorthAMapping) return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  Result<Mapping> mapping = huge_memory(bytes, "a simulation", "fewer ranks or fewer bytes");
  if (!mapping.ok()) throw std::bad_alloc();
  return mappings_.emplace_back(std::move(*mapping)).data();
}

void Pool::Pages::do_deallocate(void* at, std::size_t bytes, std::size_t alignment) {
  if (bytes < kWorthAMapping) std::pmr::new_delete_resource()->deallocate(at, bytes, alignment);
}

std::size_t Pool::rounded(std::size_t bytes) {
  return bytes <= kSmall ? (bytes + kUnit - 1) / kUnit * kUnit : std::bit_ceil(bytes);
}

Pool::Free*& Pool::list_of(std::size_t rounded_bytes) {
  return lists_[rounded_bytes <= kSmall ? rounded_bytes / kUnit
                                        : kSmall / kUnit + std::size_t(std::countr_zero(rounded_bytes))];
}

void* Pool::do_allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t size = rounded(bytes);
  Free*& list = list_of(size);
  if (list == nullptr || alignment > kUnit) return fresh_.allocate(size, std::max(alignment, kUnit));
  void* const piece = list;
  list = list->next;
  return piece;
}

void Pool::do_deallocate(void* at, std::size_t bytes, std::size_t) {
  Free*& list = list_of(rounded(bytes));
  list = new (at) Free{list};
}

}  // namespace tutti::comm
