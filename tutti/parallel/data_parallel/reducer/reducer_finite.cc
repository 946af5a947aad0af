// NaN and infinity. Where the ranks of a host average in one another's memory, each sees in its tiles what all gave,
// and knows whose it was (average_with_peers()). Elsewhere each looks at a part of the averages, while others are still
// on their way, and knows that one is not finite, but not why: what backward() left is gone, unless the gradient was
// packed and `.grad` is still what it was. Options that look at each rank's own gradients first always know.
//
// Nothing of this is told but by one number of eight bytes a rank and step, which all ranks then have alike, and which
// is the second meeting that averaging in one another's memory needs anyway.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "tutti/comm/group_region.h"
#include "tutti/comm/kernels/finite.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/parallel/data_parallel/reducer/reducer_state.h"

namespace tutti {

using Found = NonFiniteWatch::Found;

namespace {

constexpr const char* kWaiting = "wait for peers";  // in traces

}  // namespace

bool Reducer::State::looks_before() const {
  return options.finite_check == FiniteCheck::kReport || options.finite_check == FiniteCheck::kThrow;
}

void Reducer::State::look_at_own(std::size_t parameter, const at::Tensor& dense) {
  const auto bytes = checked_bytes(in_order_of_memory(dense), "a gradient");
  if (!all_finite(bytes.dtype, bytes.data, bytes.count)) watch.note(group, {parameter, group.rank()});
}

// Each rank its part: they are the same on all.
void Reducer::State::look_at_averages(const Bucket& bucket) {
  if (!looks_in_reduction() || group.size() == 1 || bucket.finish_hook) return;
  for (const auto index : bucket.parameters) {
    const auto& parameter = parameters[index];
    const auto bytes = checked_bytes(
        in_order_of_memory(parameter.window.defined() ? parameter.window : parameter.reduced), "an average");
    const OwnPart mine = own_part(group, bytes.dtype, bytes.count);
    const auto* const begin = static_cast<const std::byte*>(bytes.data) + mine.begin * size_of(bytes.dtype);
    if (!all_finite(bytes.dtype, begin, mine.end - mine.begin)) watch.note(group, {index, Found::kUnknownRank});
  }
}

// Hooks may give each rank something else.
void Reducer::State::look_at_hooks_averages(const Bucket& bucket) {
  if (options.finite_check == FiniteCheck::kOff) return;
  const int rank = looks_before() ? Found::kOnTheWay : Found::kUnknownRank;
  for (const auto index : bucket.parameters) {
    const auto bytes = checked_bytes(in_order_of_memory(parameters[index].window), "an average");
    if (!all_finite(bytes.dtype, bytes.data, bytes.count)) watch.note(group, {index, rank});
  }
}

// Between two meetings: peer_memory(), and decide_on_non_finite(). What was made last is still in the caches.
void Reducer::State::average_with_peers(std::vector<Bucket>& list) {
  std::vector<std::pair<const Bucket*, GradientRange>> ranges;
  std::vector<std::span<std::byte>> mine;
  for (auto& bucket : list) {
    for (const auto& range : std::exchange(bucket.for_peers, {})) {
      ranges.emplace_back(&bucket, range);
      mine.emplace_back(static_cast<std::byte*>(range.bytes.data), range.bytes.count * size_of(range.bytes.dtype));
    }
  }
  if (ranges.empty()) return;
  const auto places = [&] {
    const GroupRegion region(group, kWaiting);
    return peer_memory(group, mine).or_throw();
  }();
  const auto ranks = std::size_t(group.size());
  for (std::size_t k = ranges.size(); k-- > 0;) {
    const auto& [bucket, range] = ranges[k];
    const GroupRegion region(group, "average with peers", [&, &range = range]() TUTTI_REQUIRES(mutex) {
      return fmt::format("{} {}[{}]", range.parameter ? parameters[*range.parameter].name : "packed gradients",
                         name(range.bytes.dtype), range.bytes.count);
    });
    if (!places[k * ranks]) {
      average_out_of_reach(*bucket, range);
      continue;
    }
    average_part(group, range.bytes.dtype, range.bytes.count, std::span(places).subspan(k * ranks, ranks),
                 [&, bucket = bucket, &range = range](const NonFiniteTile& tile)
                     TUTTI_REQUIRES(mutex) { look_into(*bucket, range, tile); });
  }
}

// Memory that is not the group's, or other hosts'. The copies that this takes cost more than a look.
void Reducer::State::average_out_of_reach(const Bucket& bucket, const GradientRange& range) {
  if (range.parameter) look_at_own(*range.parameter, parameters[*range.parameter].reduced);
  for (const auto index : bucket.parameters)
    if (!range.parameter && parameters[index].window.defined()) look_at_own(index, parameters[index].window);
  group.run(all_reduce_of(range.bytes)).or_throw();
}

// Which parameters lie in the tile, and whose they are.
void Reducer::State::look_into(const Bucket& bucket, const GradientRange& range, const NonFiniteTile& tile) {
  const DType dtype = range.bytes.dtype;
  const std::size_t size = size_of(dtype);
  const auto look = [&](std::size_t parameter, std::size_t begin, std::size_t end) TUTTI_REQUIRES(mutex) {
    begin = std::max(begin, tile.begin);
    end = std::min(end, tile.begin + tile.count);
    if (begin >= end) return;
    const auto is_finite = [&](const void* of_tile) {
      return all_finite(dtype, static_cast<const std::byte*>(of_tile) + (begin - tile.begin) * size, end - begin);
    };
    if (is_finite(tile.average)) return;
    int maker = Found::kOnTheWay;
    for (std::size_t r = tile.given.size(); r-- > 0;)
      if (!is_finite(tile.given[r])) maker = int(r);
    watch.note(group, {parameter, maker});
  };
  if (range.parameter) return look(*range.parameter, 0, range.bytes.count);
  for (const auto index : bucket.parameters) {
    const auto& window = parameters[index].window;
    if (!window.defined()) continue;
    const auto offset = static_cast<const std::byte*>(window.data_ptr()) - static_cast<std::byte*>(range.bytes.data);
    look(index, std::size_t(offset) / size, std::size_t(offset) / size + std::size_t(window.numel()));
  }
}

bool Reducer::State::decide_on_non_finite(Give give) {
  if (options.finite_check == FiniteCheck::kOff || (taker && !looks_before())) return false;
  auto found = [&]() TUTTI_REQUIRES(mutex) {
    const GroupRegion region(group, kWaiting);
    return watch.agree(group);
  }();
  watch.begin_step();
  if (!found) return false;
  if (found->rank == Found::kUnknownRank) found->rank = rank_of_kept_gradient(found->parameter, give);
  non_finite = NonFiniteGradient{parameters[found->parameter].name, found->rank};
  return true;
}

int Reducer::State::rank_of_kept_gradient(std::size_t index, Give give) const {
  const auto& parameter = parameters[index];
  if (!parameter.window.defined() || options.gradients_as_views) return Found::kUnknownRank;
  NonFiniteWatch own;
  const auto& gradient = parameter.tensor.grad();
  if (give == Give::kGradients && gradient.defined() && !at::isfinite(gradient).all().item<bool>())
    own.note(group, {index, group.rank()});
  const auto maker = own.agree(group);
  return maker ? maker->rank : Found::kOnTheWay;
}

}  // namespace tutti
