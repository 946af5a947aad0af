#include "tutti/comm/parts.h"

namespace tutti {
namespace {

constexpr std::size_t kMostParts = std::size_t(1) << 47;  // bytes: what a process can address

std::optional<std::size_t> sum_of(std::span<const std::size_t> splits) {
  std::size_t sum = 0;
  for (const std::size_t part : splits)
    if (part > kMostParts || (sum += part) > kMostParts) return {};
  return sum;
}

}  // namespace

std::optional<Extent> extent_of(const Request& r, int rank, int size) {
  std::size_t all = 0;  // n * count
  if (r.count > kMostParts || __builtin_mul_overflow(r.count, std::size_t(size), &all)) return {};
  const auto ins = sum_of(r.in_splits), outs = sum_of(r.out_splits);
  if (!ins || !outs) return {};
  const bool root = rank == r.root;
  Extent extent;
  switch (r.kind) {
    case Kind::kBarrier:
      break;
    case Kind::kBroadcast:
    case Kind::kRecv:
      extent = {0, r.count};
      break;
    case Kind::kSend:
      extent = {r.count, 0};
      break;
    case Kind::kReduce:
      extent = {r.count, root ? r.count : 0};
      break;
    case Kind::kAllReduce:
      extent = {r.count, r.count};
      break;
    case Kind::kGather:
      extent = {r.count, root ? all : 0};
      break;
    case Kind::kAllGather:
      extent = {r.count, all};
      break;
    case Kind::kScatter:
      extent = {root ? all : 0, r.count};
      break;
    case Kind::kReduceScatter:
      extent = {all, r.count};
      break;
    case Kind::kAllToAll:
      extent = r.in_splits.empty() ? Extent{all, all} : Extent{*ins, *outs};
      break;
    case Kind::kGatherV:
      extent = {r.count, root ? *outs : 0};
      break;
    case Kind::kAllGatherV:
      extent = {r.out_splits[std::size_t(rank)], *outs};
      break;
    case Kind::kScatterV:
      extent = {root ? *ins : 0, r.count};
      break;
    case Kind::kReduceScatterV:
      extent = {*ins, r.in_splits[std::size_t(rank)]};
      break;
  }
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

}  // namespace tutti
