// From gradients to averages: a bucket is launched, waited for, and written back.
//
// What a rank gives depends on nothing but the plan: a parameter without a gradient takes part with zeros, since other
// ranks may have used it, and a gradient with other strides than its parameter is laid out like that first.
#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tutti/comm/collectives.h"
#include "tutti/comm/group_region.h"
#include "tutti/parallel/data_parallel/reducer/reducer_state.h"
#include "tutti/tensor/sparse_collectives.h"

namespace tutti {

at::Tensor in_order_of_memory(const at::Tensor& dense) {
  return dense.is_contiguous() ? dense.detach() : dense.detach().as_strided({dense.numel()}, {1});
}

Request all_reduce_of(const TensorBytes& bytes) {
  return {.kind = Kind::kAllReduce,
          .dtype = bytes.dtype,
          .op = ReduceOp::kAvg,
          .in = bytes.data,
          .out = bytes.data,
          .count = bytes.count};
}

namespace {

// Hooks compute in the types that they were given, though backward() or finish() may be called under autocast.
struct AsWritten {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::DispatchKey::AutocastCPU};
};

// A sparse gradient that touches nothing.
at::Tensor no_rows(const at::Tensor& parameter) {
  return at::_sparse_coo_tensor_with_dims(1, parameter.dim() - 1, parameter.sizes(),
                                          parameter.options().layout(at::kSparse).requires_grad(false));
}

}  // namespace

// An optimizer that takes gradients has no use for a second copy.
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
    if (options.gradients_as_views) {
      gradient = parameter.window;
    } else if (taker) {
      gradient = at::Tensor();
    }
  }
  if (looks_before()) look_at_own(index, parameter.window);
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
    add_logical_ranks(index);
    if (parameter.window.defined()) {
      fill_window(index, give);
    } else {
      if (give == Give::kGradients) require_layout(parameter, parameter.tensor.grad());
      parameter.reduced = laid_out_like_the_parameter(parameter, give);
      if (looks_before()) look_at_own(index, parameter.reduced);
      if (!taker) start(bucket, {checked_bytes(in_order_of_memory(parameter.reduced), "a gradient"), index});
    }
  }
  if (taker) return give_away(bucket);
  if (!bucket.contents.buffer.defined()) return;
  if (options.hook && parameters[bucket.parameters.front()].travel == Travel::kBucket) {
    const AsWritten no_autocast;
    bucket.contents.scale = gradient_scale;
    bucket.contents.last_was_left_out = non_finite.has_value();
    bucket.finish_hook = options.hook->start(group, bucket.contents);
  } else {
    start(bucket, {checked_bytes(bucket.contents.buffer, "a bucket of gradients"), {}});
  }
}

void Reducer::State::give_away(const Bucket& bucket) {
  std::vector<TakenGradient> gradients;
  for (const auto index : bucket.parameters) {
    auto& parameter = parameters[index];
    if (parameter.window.defined()) {
      gradients.push_back({index, parameter.window});
    } else {
      gradients.push_back({index, std::exchange(parameter.reduced, {})});
      if (taker->takes_in_backward()) parameter.tensor.mutable_grad() = at::Tensor();
    }
  }
  taker->take(gradients, bucket.contents.buffer);
}

void Reducer::State::start(Bucket& bucket, const GradientRange& range) {
  if (group.size() == 1) return;
  if (logical) return climb_from(bucket, range.bytes);
  if (peers_average) return bucket.for_peers.push_back(range);
  if (overlap) {
    bucket.works.push_back(group.submit(all_reduce_of(range.bytes)));
  } else {
    const Request request = all_reduce_of(range.bytes);
    const GroupRegion region(group, "average with peers", [&] { return to_string(request); });
    group.run(request).or_throw();
  }
}

void Reducer::State::wait_for(std::vector<Bucket>& list) {
  Status status;
  for (const auto& bucket : list) {
    for (const auto& work : bucket.works) {
      if (auto ended = work.wait(); status.ok()) status = std::move(ended);
    }
    if (status.ok() && overlap && !logical) look_at_averages(bucket);  // while others travel
  }
  status.or_throw();
  average_with_peers(list);
  for (auto& bucket : list) {
    bucket.works.clear();
    for (const auto& bytes : std::exchange(bucket.climbing, {})) climb(bytes, 1);
    if (bucket.finish_hook) {
      finish_hook(bucket);
    } else if (!peers_average && (!overlap || logical)) {
      look_at_averages(bucket);
    }
  }
}

void Reducer::State::finish_hook(Bucket& bucket) {
  const auto finish = std::exchange(bucket.finish_hook, nullptr);
  const auto& buffer = bucket.contents.buffer;
  const at::Tensor result = [&] {
    const AsWritten no_autocast;
    return finish();
  }();
  if (!result.defined() || result.numel() != buffer.numel() || result.scalar_type() != buffer.scalar_type() ||
      result.layout() != at::kStrided || !result.device().is_cpu())
    end_group("the hook " + options.hook->name() + " returned " + describe(result) + " for bucket " +
                  std::to_string(bucket.contents.index) + ", which is " + describe(buffer) + " (the gradients of " +
                  bucket.contents.names.front() +
                  (bucket.contents.names.size() > 1 ? " to " + bucket.contents.names.back() : std::string()) + ")",
              "return a tensor of the size and type of bucket.buffer, or that itself");
  if (result.data_ptr() != buffer.data_ptr()) buffer.copy_(result.view({buffer.numel()}));
  look_at_hooks_averages(bucket);
}

void Reducer::State::average_sparse_ones(Give give) {
  std::vector<std::pair<std::size_t, PendingSparse>> sums;
  for (const auto index : numbers_of(Travel::kSparse)) {
    if (!arrivals->takes_part(index)) continue;
    auto& parameter = parameters[index];
    const auto mine = give == Give::kZeros ? at::Tensor() : parameter.tensor.grad();
    if (mine.defined()) {
      require_layout(parameter, mine);
      if (options.finite_check != FiniteCheck::kOff) look_at_own(index, mine._values());
    }
    sums.emplace_back(
        index, all_reduce_sparse_async(group, mine.defined() ? mine : no_rows(parameter.tensor), ReduceOp::kAvg));
  }
  for (const auto& [index, sum] : sums) parameters[index].reduced = average_of(parameters[index], sum);
}

at::Tensor Reducer::State::average_of(const Parameter& parameter, const PendingSparse& sum) const {
  try {
    return sum.get();
  } catch (const Exception& e) {
    if (!group.status().ok() || e.error().code != Code::kMismatch) throw;
    end_group(
        "of the gradient of " + parameter.name + " rank " + std::to_string(e.error().peer) + " " + e.error().detail,
        "use the same operators on every rank");
  }
}

// What the averages over the group are multiplied by, when they have been taken.
double Reducer::State::average_factor() const {
  const bool shares_unevenly = joining && joining->divide_by_active && joining->now.active < group.size();
  return (shares_unevenly ? double(group.size()) / joining->now.active : 1) * (logical ? logical->factor() : 1) /
         gradient_scale;
}

// Who has run out of data takes it that the others use all that is waited for, where nobody asks.
std::vector<std::uint8_t> Reducer::State::used_anywhere(bool exchange, Give give) const {
  std::vector<std::uint8_t> used;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    used.push_back(give == Give::kZeros && !exchange ? arrivals->takes_part(i) : parameters[i].touched);
  if (exchange) all_reduce(group, std::span(used), ReduceOp::kMax);
  return used;
}

void Reducer::State::write_back_all(const std::vector<std::size_t>& numbers, const std::vector<std::uint8_t>& used) {
  for (const auto index : numbers) {
    if (used[index]) write_back(index);
  }
}

void Reducer::State::write_back(std::size_t index) {
  auto& parameter = parameters[index];
  auto& gradient = parameter.tensor.mutable_grad();
  const double factor = average_factor();
  const at::Tensor average = parameter.window.defined() ? parameter.window : parameter.reduced;
  if (factor != 1) parameter.travel == Travel::kSparse ? average._values().mul_(factor) : average.mul_(factor);
  if (parameter.travel == Travel::kSparse) {
    gradient = average;
  } else if (gradient.defined()) {
    if (gradient.data_ptr() != average.data_ptr()) gradient.copy_(average);
  } else {
    gradient = parameter.window.defined() && !options.gradients_as_views ? average.clone() : average;
  }
}

}  // namespace tutti
