#include "tutti/comm/heap.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "tutti/base/text.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kAlignment = Heap::kAlignment;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlab = std::size_t(64) << 10;  // pages that are cut into blocks of one class, permanently
constexpr std::size_t kLeastGrowth = std::size_t(256) << 10;
constexpr std::size_t kMost = std::size_t(1) << 47;  // more than the address space of a process

std::size_t round_up(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }

// Eight classes per power of two, so at most an eighth of a block is wasted.
std::size_t class_of(std::size_t bytes) {
  bytes = std::max(bytes, kAlignment);
  return round_up(bytes, std::max(kAlignment, std::bit_floor(bytes) / 8));
}

bool is_small(std::size_t bytes) { return bytes < kPage; }

}  // namespace

Result<std::size_t> Heap::allocate(std::size_t bytes) {
  if (bytes > kMost) return Error{.code = Code::kLimit, .detail = "cannot allocate " + bytes_text(bytes)};
  MutexLock lock(mutex_);
  if (!is_small(bytes)) return take_pages(round_up(bytes, kPage));
  const std::size_t size = class_of(bytes);
  auto& blocks = small_[size];
  if (blocks.empty()) {
    const std::size_t slab = TUTTI_TRY(take_pages(kSlab));
    for (std::size_t at = kSlab / size * size; at >= size; at -= size) blocks.push_back(slab + at - size);
  }
  const std::size_t offset = blocks.back();
  blocks.pop_back();
  return offset;
}

void Heap::release(std::size_t offset, std::size_t bytes) {
  MutexLock lock(mutex_);
  if (is_small(bytes))
    small_[class_of(bytes)].push_back(offset);
  else
    add_pages(offset, round_up(bytes, kPage));
}

// Takes the smallest run that is large enough; among equal ones, the first. If there is none, the arena grows by what
// its last run lacks.
Result<std::size_t> Heap::take_pages(std::size_t bytes) {
  auto best = free_by_size_.lower_bound({bytes, 0});
  if (best == free_by_size_.end()) {
    std::size_t missing = bytes;
    if (!free_.empty()) {
      const auto& [offset, size] = *free_.rbegin();
      if (offset + size == arena_.size()) missing -= size;
    }
    const std::size_t fresh = TUTTI_TRY(arena_.grow(std::max(missing, kLeastGrowth)));
    add_pages(fresh, arena_.size() - fresh);
    best = free_by_size_.lower_bound({bytes, 0});
    TUTTI_INVARIANT(best != free_by_size_.end(), "the arena grew by less than ", missing);
  }
  const auto [size, offset] = *best;
  free_by_size_.erase(best);
  free_.erase(offset);
  if (size > bytes) add_pages(offset + bytes, size - bytes);
  return offset;
}

void Heap::remove_run(std::map<std::size_t, std::size_t>::iterator run) {
  free_by_size_.erase({run->second, run->first});
  free_.erase(run);
}

void Heap::add_pages(std::size_t offset, std::size_t bytes) {
  auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      remove_run(before);
    }
  }
  if (after != free_.end() && offset + bytes == after->first) {
    bytes += after->second;
    remove_run(after);
  }
  free_.emplace(offset, bytes);
  free_by_size_.emplace(bytes, offset);
}

}  // namespace tutti::comm
