// The digest of all tensors is compared first, since nearly always all ranks agree; where they do not, the digest of
// each tensor, so that every rank can say which one it is and whose.
#include "tutti/parallel/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tutti/base/crc32c.h"
#include "tutti/comm/collectives.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

std::uint32_t digest_of(const at::Tensor& tensor) {
  const auto values = tensor.detach().cpu().contiguous();
  return crc32c(
      {static_cast<const std::byte*>(values.data_ptr()), std::size_t(values.numel()) * values.element_size()});
}

// Of rank r: all[r].
template <class T>
std::vector<std::vector<T>> of_all_ranks(const Group& group, const std::vector<T>& mine) {
  std::vector<T> all(mine.size() * std::size_t(group.size()));
  all_gather(group, std::span<const T>(mine), std::span(all));
  std::vector<std::vector<T>> by_rank;
  for (std::size_t begin = 0; begin < all.size(); begin += mine.size())
    by_rank.emplace_back(all.begin() + std::ptrdiff_t(begin), all.begin() + std::ptrdiff_t(begin + mine.size()));
  return by_rank;
}

// The ranks whose value is not the most frequent one; all ranks where no value is more frequent than the others.
std::vector<int> odd_ranks(const std::vector<std::int64_t>& values) {
  std::map<std::int64_t, int> counts;
  for (const auto value : values) ++counts[value];
  const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = *std::max_element(counts.begin(), counts.end(), by_count);
  const bool tie =
      std::count_if(counts.begin(), counts.end(), [&](const auto& c) { return c.second == most.second; }) > 1;
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < values.size(); ++rank)
    if (tie || values[rank] != most.first) odd.push_back(int(rank));
  return odd;
}

Error difference(const Group& group, std::span<const NamedTensor> tensors, const std::vector<std::int64_t>& digests) {
  const auto by_rank = of_all_ranks(group, digests);
  std::size_t first = 0, differing = 0;
  for (std::size_t t = digests.size(); t-- > 0;) {
    const bool equal =
        std::all_of(by_rank.begin(), by_rank.end(), [&](const auto& d) { return d[t] == by_rank[0][t]; });
    if (!equal) first = t, ++differing;
  }
  std::vector<std::int64_t> values;
  for (const auto& rank : by_rank) values.push_back(rank[first]);
  const auto odd = odd_ranks(values);
  const bool all = odd.size() == values.size();
  return Error{.code = Code::kMismatch,
               .detail = fmt::format(
                   "the replicas are no longer equal: {} of {} tensors differ, the first is {} ({}), on {} {}{}",
                   differing, digests.size(), tensors[first].name, describe(tensors[first].tensor),
                   odd.size() == 1 ? "rank" : "ranks", fmt::join(odd, ", "), all ? " (none is in the majority)" : ""),
               .hint =
                   "on that rank: a gradient that was changed after finish(), a parameter that DataParallel does not "
                   "know of, other libraries or cores than elsewhere, or broken memory",
               .group = group.name(),
               .rank = group.rank()};
}

}  // namespace

void require_equal_replicas(const Group& group, std::span<const NamedTensor> tensors) {
  std::vector<std::int64_t> digests;
  for (const auto& named : tensors) digests.push_back(digest_of(named.tensor));
  const auto bytes = std::as_bytes(std::span(digests));
  const std::int64_t all = std::int64_t(crc32c(bytes)) << 32 | std::int64_t(tensors.size());
  const auto of_ranks = of_all_ranks(group, std::vector<std::int64_t>{all});
  if (std::all_of(of_ranks.begin(), of_ranks.end(), [&](const auto& digest) { return digest[0] == all; })) return;
  const auto count = [](std::int64_t digest) { return digest & 0xFFFFFFFF; };
  for (const auto& digest : of_ranks)
    TUTTI_REQUIRE(count(digest[0]) == count(all), "require_equal_replicas: ", count(all), " tensors on rank ",
                  group.rank(), ", but ", count(digest[0]), " elsewhere");
  throw Exception(difference(group, tensors, digests));
}

ReplicaCheck::ReplicaCheck(const Group& group, std::vector<NamedTensor> tensors, ReplicaCheckOptions options)
    : group_(group), tensors_(std::move(tensors)), options_(options) {
  for (const auto& named : tensors_) require_memory(named.tensor, "ReplicaCheck: " + named.name);
}

void ReplicaCheck::step() {
  if (options_.every > 0 && ++steps_ % options_.every == 0) require_equal_replicas(group_, tensors_);
}

}  // namespace tutti
