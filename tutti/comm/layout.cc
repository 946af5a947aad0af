#include "tutti/comm/layout.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kMostParts = std::size_t(1) << 47;  // bytes: the address space of a process

bool fits(std::span<const std::size_t> splits) {
  std::size_t sum = 0;
  for (const std::size_t part : splits)
    if (part > kMostParts || (sum += part) > kMostParts) return false;
  return true;
}

}  // namespace

std::optional<Extent> extent_of(const Request& r, int rank, int size) {
  std::size_t all = 0;
  if (r.count > kMostParts || __builtin_mul_overflow(r.count, std::size_t(size), &all)) return {};
  if (!fits(r.in_splits) || !fits(r.out_splits)) return {};
  const Extent extent = elements_of(r, rank, size);
  const std::size_t element = size_of(r.dtype);
  if (extent.in > kMostParts / element || extent.out > kMostParts / element) return {};
  return extent;
}

std::uint64_t digest_of(std::span<const std::size_t> splits) {
  std::uint64_t digest = splits.size();
  for (const std::uint64_t part : splits) {
    digest = (digest ^ part) * 0x9e3779b97f4a7c15ull;
    digest ^= digest >> 29;
  }
  return digest;
}

std::size_t own_part_offset(const Request& r, int rank) {
  return Parts(r.count, gives_parts(r.kind) ? r.in_splits : r.out_splits).begin(rank) * size_of(r.dtype);
}

}  // namespace tutti::comm
