// Which parameters are averaged, and where their gradients are packed.
//
// A bucket is a list of ranges. A gradient of at least `in_place_bytes` is a range of its own and is all-reduced in
// place: HeapTensors has LibTorch make it in memory that the peers can read, and AccumulateGrad takes a fresh gradient
// over without a copy, so nothing is copied. Smaller ones are packed into one flat range per bucket
// and copied back afterwards. With `gradient_as_bucket_view` everything is packed and `.grad` is a window into the flat
// range: no copies, but autograd adds into it. For a hook, too, everything is packed: it gets one tensor.
//
// We hold the AccumulateGrad nodes; their hooks hold our state weakly, so a model outlives its reducer.
#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tutti/base/text.h"
#include "tutti/parallel/data_parallel/reducer/features/features.h"
#include "tutti/tensor/device_numbers.h"
#include "tutti/tensor/gradient_hook.h"
#include "tutti/tensor/group_tensor.h"

namespace tutti {
namespace {

using Names = std::unordered_set<std::string>;
Names names_in(const std::vector<std::string>& list) { return {list.begin(), list.end()}; }

// Gradients that one flat range may hold: of one element type, on one device.
int kind_of(const at::Tensor& tensor, DeviceNumbers& devices) {
  return devices.of(tensor.device()) << 8 | int(tensor.scalar_type());
}

}  // namespace

std::vector<NamedTensor> Reducer::State::not_ignored(std::vector<NamedTensor> tensors) const {
  if (options.params_and_buffers_to_ignore.empty()) return tensors;
  const auto ignored = names_in(options.params_and_buffers_to_ignore);
  std::erase_if(tensors, [&](const NamedTensor& named) { return ignored.contains(named.name); });
  return tensors;
}

void Reducer::State::collect_parameters() {
  auto sparse = names_in(options.sparse);
  for (auto& name : sparse_parameters_of(module)) sparse.insert(std::move(name));
  const auto delayed = names_in(options.delay_all_reduce_named_params),
             passed_over = names_in(options.params_and_buffers_to_ignore);
  for (const auto& [name, tensor] : parameters_of(*module))
    if (passed_over.contains(name)) ignored.push_back(tensor);
  for (const auto& [name, tensor] : not_ignored(without_repeats(parameters_of(*module)))) {
    if (!tensor.requires_grad()) continue;
    require_memory(tensor, "parameter " + name);
    const bool dense_in_memory = tensor.is_non_overlapping_and_dense();
    (void)bytes_anywhere(dense_in_memory ? in_order_of_memory(tensor) : tensor.detach(), "parameter " + name);
    parameters.push_back({.name = name,
                          .tensor = tensor,
                          .route = sparse.contains(name)    ? Route::kSparse
                                   : delayed.contains(name) ? Route::kDelayed
                                                            : Route::kBucket,
                          .bytes = std::size_t(tensor.numel()) * tensor.element_size()});
  }
  arrivals.emplace(parameters.size());
}

std::vector<std::size_t> Reducer::State::numbers_of(Route route) const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].route == route) numbers.push_back(i);
  return numbers;
}

void Reducer::State::install_hooks() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].accumulator = after_gradient(parameters[i].tensor, [weak = weak_from_this(), i] {
      if (const auto state = weak.lock()) state->on_gradient(i);
    });
  }
}

void Reducer::State::make_buckets(const std::vector<std::size_t>& order) {
  buckets = buckets_of(order);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    buckets[i].contents.index = i;
    buckets[i].contents.is_last = i + 1 == buckets.size();
    for (const auto index : buckets[i].parameters) parameters[index].bucket = i;
  }
  begin_step();
}

std::vector<Bucket> Reducer::State::buckets_of(const std::vector<std::size_t>& order) {
  std::vector<GradientShape> shapes;
  DeviceNumbers devices;
  for (const auto& parameter : parameters)
    shapes.push_back({.count = std::size_t(parameter.tensor.numel()),
                      .element_bytes = std::size_t(parameter.tensor.element_size()),
                      .kind = kind_of(parameter.tensor, devices)});
  const bool pack_all = options.gradient_as_bucket_view || options.hook;
  const BucketLimits limits{.first_bytes = options.first_bucket_bytes,
                            .bytes = std::size_t(std::llround(options.bucket_cap_mb * (1 << 20))),
                            .in_place_bytes = pack_all ? std::size_t(-1) : options.in_place_bytes};
  std::vector<Bucket> made;
  for (const auto& plan : plan_buckets(shapes, order, limits)) {
    Bucket& bucket = made.emplace_back();
    bucket.bytes = plan.bytes;
    for (const auto& slot : plan.slots) bucket.parameters.push_back(slot.gradient);
    pack(bucket, plan);
  }
  return made;
}

// Gives every packed gradient of the bucket its window.
void Reducer::State::pack(Bucket& bucket, const PlannedBucket& plan) {
  for (const auto index : bucket.parameters) parameters[index].window = at::Tensor();
  const bool packs = std::any_of(plan.slots.begin(), plan.slots.end(), [](const auto& s) { return !s.in_place(); });
  if (!packs) return;
  const auto like = parameters[bucket.parameters.front()].tensor.options().requires_grad(false);
  auto& contents = bucket.contents;
  contents.buffer = group_tensor(group, std::int64_t(plan.packed_count), like);
  for (const auto& slot : plan.slots) {
    if (slot.in_place()) continue;
    auto& parameter = parameters[slot.gradient];
    parameter.window =
        alias_of(contents.buffer, std::int64_t(slot.offset), parameter.tensor.sizes(), parameter.tensor.strides());
    parameter.is_view = options.gradient_as_bucket_view;
    if (parameter.is_view && parameter.tensor.grad().defined()) {
      parameter.window.copy_(parameter.tensor.grad());
      parameter.tensor.mutable_grad() = parameter.window;
    }
    contents.names.push_back(parameter.name);
    contents.parameters.push_back(parameter.tensor);
    contents.gradients.push_back(parameter.window);
  }
}

}  // namespace tutti
