// Fresh pages cost ten times what copying into them does: the kernel has to find and clear each at its first touch. So
// the memory is populated when it is reserved, before training begins, and kept from save to save.
#include "tutti/checkpoint/io/snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/checkpoint/io/shard_file.h"

namespace tutti {
namespace {

constexpr std::size_t kSnapshotAlignment = 64;
constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::size_t kSmallPage = 4096;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Status populate(std::byte* data, std::size_t size) {
  (void)::madvise(data, size, MADV_HUGEPAGE);
  (void)::madvise(data, size, MADV_DONTDUMP);
  if (::madvise(data, size, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL)
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("there is no memory for a copy of {} of the state", bytes_text(size)),
                 .errno_value = errno};
  for (std::size_t at = 0; at < size; at += kSmallPage) {  // a kernel before 5.14
    volatile std::byte& one = data[at];
    one = one;
  }
  return {};
}

Status copy_box(const StateBox& saved, std::byte* into) {
  const TensorBox box = box_of(saved);
  const std::uint64_t rows = box.row_count(), row_bytes = box.row_elements() * size_of(saved.dtype);
  if (rows * row_bytes == 0) return {};
  if (saved.source) {
    const std::uint64_t at_once = std::max<std::uint64_t>(1, kChunkBytes / row_bytes);
    for (std::uint64_t first = 0; first < rows; first += at_once)
      TUTTI_TRY(saved.source(first, std::min(at_once, rows - first), into + first * row_bytes));
    return {};
  }
  const auto* from = static_cast<const std::byte*>(saved.data);
  if (saved.row_stride == 0 || saved.row_stride == row_bytes) {
    std::memcpy(into, from, rows * row_bytes);
    return {};
  }
  for (std::uint64_t row = 0; row < rows; ++row)
    std::memcpy(into + row * row_bytes, from + row * saved.row_stride, row_bytes);
  return {};
}

PrefaultedMemory::~PrefaultedMemory() {
  if (data_) ::munmap(data_, size_);
}

Status PrefaultedMemory::reserve(std::size_t bytes) {
  bytes = round_up(bytes, bytes < kHugePage ? kSmallPage : kHugePage);
  if (bytes <= size_) return {};
  if (data_) ::munmap(std::exchange(data_, nullptr), std::exchange(size_, 0));
  void* const fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED)
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("there is no memory for a copy of {} of the state", bytes_text(bytes)),
                 .errno_value = errno};
  data_ = static_cast<std::byte*>(fresh);
  size_ = bytes;
  Status there = populate(data_, size_);
  if (!there.ok()) ::munmap(std::exchange(data_, nullptr), std::exchange(size_, 0));
  return there;
}

std::size_t snapshot_bytes(std::span<const StateBox> boxes, std::span<const std::size_t> chosen) {
  std::size_t all = 0;
  for (const std::size_t number : chosen) all += round_up(bytes_of(boxes[number]), kSnapshotAlignment);
  return all;
}

Result<std::vector<StateBox>> take_snapshot(std::span<const StateBox> boxes, std::span<const std::size_t> chosen,
                                            PrefaultedMemory& memory) {
  TUTTI_TRY(memory.reserve(snapshot_bytes(boxes, chosen)));
  std::vector<StateBox> copies;
  std::byte* at = memory.data();
  for (const std::size_t number : chosen) {
    const StateBox& saved = boxes[number];
    TUTTI_TRY(copy_box(saved, at));
    copies.push_back({.key = saved.key, .dtype = saved.dtype, .shape = saved.shape, .box = box_of(saved), .data = at});
    at += round_up(bytes_of(saved), kSnapshotAlignment);
  }
  return copies;
}

}  // namespace tutti
