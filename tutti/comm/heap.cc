#include "tutti/comm/heap.h"

#include <algorithm>
#include <bit>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMost = std::size_t(1) << 47;  // more than a process can address
constexpr std::size_t kLeastGrowth = std::size_t(256) << 10;

}  // namespace

// Eight classes for each power of two: at most an eighth is wasted.
std::size_t Heap::class_size(std::size_t bytes) {
  bytes = std::max(bytes, kAlignment);
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

Result<std::size_t> Heap::allocate(std::size_t bytes) {
  if (bytes > kMost) return Error{.code = Code::kLimit, .detail = "cannot allocate " + bytes_text(bytes)};
  const std::size_t size = class_size(bytes);
  std::lock_guard lock(mutex_);
  if (auto found = free_.find(size); found != free_.end() && !found->second.empty()) {
    const std::size_t offset = found->second.back();
    found->second.pop_back();
    return offset;
  }
  // Blocks of a page or more begin on a page: no two of them share one.
  std::size_t begin = size >= kPage ? (next_ + kPage - 1) / kPage * kPage : next_;
  if (begin + size > end_) {
    const std::size_t growth = std::max(size, kLeastGrowth);
    const std::size_t fresh = TUTTI_TRY(arena_.grow(growth));
    if (fresh != end_) next_ = fresh;  // growths are contiguous, except for the first
    end_ = arena_.size();
    begin = size >= kPage ? (next_ + kPage - 1) / kPage * kPage : next_;
    if (begin + size > end_) {
      (void)TUTTI_TRY(arena_.grow(begin + size - end_));
      end_ = arena_.size();
    }
  }
  next_ = begin + size;
  return begin;
}

void Heap::release(std::size_t offset, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  free_[class_size(bytes)].push_back(offset);
}

}  // namespace tutti
