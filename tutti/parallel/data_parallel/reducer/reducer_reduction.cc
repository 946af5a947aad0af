// From gradients to averages: a bucket is launched, waited for, and written back.
//
// What a rank gives depends on nothing but the plan: a parameter without a gradient takes part with zeros, since other
// ranks may have used it, and a gradient with other strides than its parameter is laid out like that first.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include "tutti/comm/collectives.h"
#include "tutti/comm/group_region.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/parallel/data_parallel/reducer/reducer_state.h"
#include "tutti/parallel/gradients/peer_averages.h"

namespace tutti {

Request all_reduce_of(const TensorBytes& bytes) {
  return {.kind = Kind::kAllReduce,
          .dtype = bytes.dtype,
          .op = ReduceOp::kAvg,
          .in = bytes.data,
          .out = bytes.data,
          .count = bytes.count,
          .device = bytes.place.device,
          .stream = bytes.place.stream};
}

namespace {

std::string text_of(const GradientRange& range, const std::vector<Parameter>& parameters) {
  return fmt::format("{} {}[{}]", range.parameter ? parameters[*range.parameter].name : "packed gradients",
                     name(range.bytes.dtype), range.bytes.count);
}

}  // namespace

void Reducer::State::fill_window(std::size_t index, Give give) {
  auto& parameter = parameters[index];
  if (std::exchange(parameter.packed, true)) return;
  auto& gradient = parameter.tensor.mutable_grad();
  if (give == Give::kGradients) require_layout(parameter, gradient);
  if (give == Give::kZeros || !gradient.defined()) {
    parameter.window.zero_();
    return;
  }
  if (gradient.data_ptr() != parameter.window.data_ptr()) {
    parameter.window.copy_(gradient);
    if (options.gradient_as_bucket_view) {
      gradient = parameter.window;
    } else if (!writes_back) {
      gradient = at::Tensor();
    }
  }
  if (finite.checks_own()) finite.check_own(index, parameter.window);
}

at::Tensor Reducer::State::laid_out_like_the_parameter(const Parameter& parameter, Give give) const {
  const auto& gradient = parameter.tensor.grad();
  if (give == Give::kZeros || !gradient.defined()) return at::zeros_like(parameter.tensor);
  if (gradient.strides() == parameter.tensor.strides()) return gradient;
  return at::empty_like(parameter.tensor).copy_(gradient);
}

void Reducer::State::launch(Bucket& bucket, Give give) {
  const at::NoGradGuard no_grad;
  for (const auto index : bucket.parameters) {
    auto& parameter = parameters[index];
    for (const auto& feature : features) feature->on_ready(*this, index, give);
    if (parameter.window.defined()) {
      fill_window(index, give);
      continue;
    }
    if (give == Give::kGradients) require_layout(parameter, parameter.tensor.grad());
    parameter.reduced = laid_out_like_the_parameter(parameter, give);
    if (finite.checks_own()) finite.check_own(index, parameter.reduced);
  }
  for (const auto& feature : features)
    if (feature->on_bucket(*this, bucket, give)) return;
  for (const auto& range : ranges_of(bucket)) start(bucket, range);
}

std::vector<GradientRange> Reducer::State::ranges_of(const Bucket& bucket) const {
  std::vector<GradientRange> ranges;
  if (group.size() == 1) return ranges;
  for (const auto index : bucket.parameters) {
    const auto& parameter = parameters[index];
    if (!parameter.window.defined())
      ranges.push_back({bytes_anywhere(in_order_of_memory(parameter.reduced), "a gradient"), index});
  }
  if (bucket.contents.buffer.defined())
    ranges.push_back({bytes_anywhere(bucket.contents.buffer, "a bucket of gradients"), {}});
  return ranges;
}

void Reducer::State::start(Bucket& bucket, const GradientRange& range) {
  if (peers_average) return bucket.for_peers.push_back(range);
  const Request request = all_reduce_of(range.bytes);
  if (overlap) {
    bucket.works.push_back(group.submit(request));
  } else {
    const GroupRegion region(group, "average with peers", [&] { return to_string(request); });
    group.run(request).or_throw();
  }
}

// Checks the averages of a bucket while those behind it are still in flight.
void Reducer::State::wait_for(std::vector<Bucket>& list) {
  Status status;
  for (auto& bucket : list) {
    for (const auto& work : bucket.works) {
      if (auto ended = work.wait(); status.ok()) status = std::move(ended);
    }
    if (!status.ok()) continue;
    bucket.works.clear();
    for (const auto& feature : features) feature->on_reduced(*this, bucket);
    if (writes_back && !peers_average && !bucket.hooked) finite.check_averages(parameters, bucket);
  }
  status.or_throw();
  average_with_peers(list);
}

// Between two barriers: peer_memory(), and FiniteChecks::decide(). What was made last is still in the caches.
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
    const GroupRegion region(group, "wait for peers");
    return peer_memory(group, mine).or_throw();
  }();
  const auto ranks = std::size_t(group.size());
  for (std::size_t k = ranges.size(); k-- > 0;) {
    const Bucket& bucket = *ranges[k].first;
    const GradientRange& range = ranges[k].second;
    const GroupRegion region(group, "average with peers",
                             [&]() TUTTI_REQUIRES(mutex) { return text_of(range, parameters); });
    if (places[k * ranks]) {
      tutti::average_with_peers(
          group, range.bytes.dtype, range.bytes.count, std::span(places).subspan(k * ranks, ranks),
          [&](const AverageTile& tile) TUTTI_REQUIRES(mutex) { finite.note(parameters, bucket, range, tile); });
      continue;
    }
    // Memory that is not the group's, or other hosts'. The copies that this takes cost more than a check.
    if (range.parameter) finite.check_own(*range.parameter, parameters[*range.parameter].reduced);
    for (const auto index : bucket.parameters)
      if (!range.parameter && parameters[index].window.defined()) finite.check_own(index, parameters[index].window);
    group.run(all_reduce_of(range.bytes)).or_throw();
  }
}

// What the averages over the group are multiplied by, when they have been taken.
double Reducer::State::average_factor() const {
  double factor = 1;
  for (const auto& feature : features) factor *= feature->factor(*this);
  return factor / gradient_scale;
}

// A rank that has run out of data assumes that the others use all that is waited for, unless ranks are asked.
std::vector<std::uint8_t> Reducer::State::used_anywhere(bool exchange, Give give) const {
  std::vector<std::uint8_t> used;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    used.push_back(give == Give::kZeros && !exchange ? arrivals->takes_part(i) : parameters[i].touched);
  if (exchange) all_reduce(group, std::span(used), ReduceOp::kMax);
  return used;
}

void Reducer::State::write_back(const std::vector<std::size_t>& numbers, const std::vector<std::uint8_t>& used) {
  const double factor = average_factor();
  for (const auto index : numbers) {
    if (!used[index]) continue;
    auto& parameter = parameters[index];
    auto& gradient = parameter.tensor.mutable_grad();
    const at::Tensor average = parameter.given();
    if (factor != 1) (average.is_sparse() ? average._values() : average).mul_(factor);
    if (average.is_sparse()) {
      gradient = average;
    } else if (gradient.defined()) {
      if (gradient.data_ptr() != average.data_ptr()) gradient.copy_(average);
    } else {
      gradient = parameter.window.defined() && !parameter.is_view ? average.clone() : average;
    }
  }
}

}  // namespace tutti
