// Where the ranks of a host average in one another's memory, a rank sees in its tiles what all ranks gave, and knows
// whose gradient is not finite. Elsewhere each rank checks a part of the averages, while other buckets are still in
// flight, and knows that one is not finite, but not why: the gradient that backward() left is gone, unless it was
// packed and `.grad` is still what it was. Options that check each rank's own gradients first always know.
//
// Ranks exchange one 8-byte value per step. That all_reduce is also the second barrier that averaging in one another's
// memory needs.
#include "tutti/parallel/data_parallel/reducer/finite.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "tutti/comm/group_region.h"
#include "tutti/comm/kernels/finite.h"
#include "tutti/parallel/gradients/peer_averages.h"

namespace tutti {

void FiniteChecks::check_own(std::size_t parameter, const at::Tensor& dense) {
  findings_.check(dense, {parameter, group_.rank()});
}

void FiniteChecks::check_averages(std::span<const Parameter> parameters, const Bucket& bucket) {
  if (!checks_averages() || group_.size() == 1) return;
  for (const auto index : bucket.parameters) {
    const at::Tensor& average = parameters[index].given();
    const OwnPart mine = own_part(group_, average.element_size(), std::size_t(average.numel()));
    findings_.add(in_order_of_memory(average).narrow(0, std::int64_t(mine.begin), std::int64_t(mine.end - mine.begin)),
                  {index, NonFinite::kUnknownRank});
  }
}

void FiniteChecks::check_averages_of_hook(std::span<const Parameter> parameters, const Bucket& bucket) {
  if (!is_on()) return;
  const int rank = checks_own() ? NonFinite::kOnTheWay : NonFinite::kUnknownRank;
  for (const auto index : bucket.parameters) findings_.add(parameters[index].window, {index, rank});
}

void FiniteChecks::note(std::span<const Parameter> parameters, const Bucket& bucket, const GradientRange& range,
                        const AverageTile& tile) {
  const std::size_t size = size_of(range.bytes.dtype), first = std::size_t(tile.begin);
  const auto check = [&](std::size_t parameter, std::size_t begin, std::size_t end) {
    begin = std::max(begin, first);
    end = std::min(end, first + std::size_t(tile.count));
    if (begin >= end) return;
    const auto* const average = static_cast<const std::byte*>(tile.average) + (begin - first) * size;
    if (comm::all_finite(tile.dtype, average, end - begin)) return;
    findings_.note({parameter, rank_of_non_finite(tile.dtype, tile.gradients, begin - first, end - begin)});
  };
  if (range.parameter) return check(*range.parameter, 0, range.bytes.count);
  for (const auto index : bucket.parameters) {
    const auto& window = parameters[index].window;
    if (!window.defined()) continue;
    const auto offset = static_cast<const std::byte*>(window.data_ptr()) - static_cast<std::byte*>(range.bytes.data);
    check(index, std::size_t(offset) / size, std::size_t(offset) / size + std::size_t(window.numel()));
  }
}

bool FiniteChecks::decide(std::span<const Parameter> parameters, Give give) {
  auto found = [&] {
    const GroupRegion region(group_, "wait for peers");
    return findings_.agree(group_);
  }();
  findings_ = {};
  if (!found) return false;
  const Parameter& parameter = parameters[found->parameter];
  if (found->rank == NonFinite::kUnknownRank) found->rank = rank_of_kept_gradient(found->parameter, parameter, give);
  found_ = NonFiniteGradient{parameter.name, found->rank};
  return true;
}

// Every rank calls.
int FiniteChecks::rank_of_kept_gradient(std::size_t index, const Parameter& parameter, Give give) const {
  const auto& gradient = parameter.tensor.grad();
  if (!parameter.window.defined() || parameter.is_view) return NonFinite::kUnknownRank;
  GradientFindings own;
  if (give == Give::kGradients && gradient.defined() && !at::isfinite(gradient).all().item<bool>())
    own.note({index, group_.rank()});
  const auto maker = own.agree(group_);
  return maker ? maker->rank : NonFinite::kOnTheWay;
}

}  // namespace tutti
