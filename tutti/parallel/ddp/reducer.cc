// How gradients become averages.
//
// Each parameter has an AccumulateGrad node in autograd's graph; a hook behind it runs when its gradient of this
// backward is complete. Parameters are gathered in buckets, first in the reverse of their registration, which is
// roughly the order in which gradients come, and from the second step on in the order that was observed (rank 0's, so
// that all agree). A bucket is launched when all its gradients are there and all buckets before it were launched: the
// order on the group is then the same on every rank, whatever the order of hooks.
//
// A bucket is a list of ranges. A gradient of at least `in_place_bytes` is a range of its own: it is all-reduced where
// it lies, and since HeapTensors has LibTorch make it in memory that the peers can read, and AccumulateGrad takes a
// fresh gradient over without a copy, nobody copies anything. Smaller ones are packed into one flat range per bucket
// and copied back afterwards. With `gradients_as_views` everything is packed and `.grad` is a window into the flat
// range: no copies, but autograd adds into it.
//
// When to launch is a question of cores. With a spare core per rank the engine thread reduces while backward computes
// (kOn). With none the two would only take turns on one core, so everything is launched in finish(), on the calling
// thread (kOff).
//
// LibTorch holds AccumulateGrad nodes weakly, so we hold them; hooks hold our state weakly, so a model outlives its
// reducer.
#include "tutti/parallel/ddp/reducer.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/ddp/gradient_taker.h"
#include "tutti/parallel/ddp/replicas.h"
#include "tutti/planning/buckets.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compat.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

constexpr std::size_t kFlatAlignment = 64;  // of every packed gradient, in bytes

struct Parameter {
  std::string name;
  at::Tensor tensor;
  compat::AccumulatorPtr accumulator;
  std::size_t bytes = 0;
  std::size_t bucket = 0;
  at::Tensor window;     // its place in the bucket's flat range; undefined: reduced where it lies
  at::Tensor reduced;    // while in flight: what is reduced where it lies
  bool ready = false;    // its gradient of this step is complete
  bool packed = false;   // and in its window
  bool touched = false;  // it got a gradient since the last finish(), be it inside no_sync()
};

struct Bucket {
  std::vector<std::size_t> parameters;
  at::Tensor flat;  // the packed ones; undefined if there are none
  std::size_t bytes = 0;
  std::size_t waiting = 0;  // parameters that are not ready
  std::vector<Work> works;
};

class Hook final : public torch::autograd::FunctionPostHook {
 public:
  explicit Hook(std::function<void()> act) : act_(std::move(act)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    act_();
    return outputs;
  }

 private:
  std::function<void()> act_;
};

// All elements of a tensor without holes, in the order of memory.
TensorBytes dense_bytes(const at::Tensor& tensor, const std::string& role) {
  if (tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense()) return checked_bytes(tensor, role);
  return checked_bytes(tensor.as_strided({tensor.numel()}, {1}), role);
}

}  // namespace

struct Reducer::State : std::enable_shared_from_this<Reducer::State> {
  State(std::shared_ptr<torch::nn::Module> model, const Group& world, const DataParallelOptions& given)
      : module(std::move(model)), group(world), options(given) {}

  void collect_parameters();
  void install_hooks();
  void make_buckets(const std::vector<std::size_t>& order);
  void pack_bucket(Bucket& bucket);
  at::Tensor shared_tensor(std::size_t count, const at::TensorOptions& like) const;
  void on_ready(std::size_t index);
  void pack(Parameter& parameter);
  static void require_dense(const Parameter& parameter);
  void launch(Bucket& bucket);
  void give_away(const Bucket& bucket);
  void start(Bucket& bucket, const TensorBytes& bytes);
  void require_all_ready();
  void write_back(const Bucket& bucket, const std::vector<std::uint8_t>& used);
  std::vector<std::uint8_t> used_anywhere();
  void adopt_observed_order();
  void begin_step();

  std::shared_ptr<torch::nn::Module> module;
  Group group;
  DataParallelOptions options;
  std::optional<HeapTensors> heap;
  bool overlap = false;

  mutable std::mutex mutex;  // guards all below: hooks may run on autograd's threads
  std::vector<Parameter> parameters;
  std::vector<Bucket> buckets;
  std::size_t next_bucket = 0;        // the first that was not launched
  std::vector<std::size_t> observed;  // parameters in the order of this step's gradients
  bool order_is_final = false;
  bool sync = true;
  GradientTaker* taker = nullptr;
  DataParallelStats totals;
};

void Reducer::State::collect_parameters() {
  for (const auto& [name, tensor] : without_repeats(parameters_of(*module))) {
    if (!tensor.requires_grad()) continue;
    (void)dense_bytes(tensor.detach(), "parameter " + name);
    parameters.push_back(
        {.name = name, .tensor = tensor, .bytes = std::size_t(tensor.numel()) * tensor.element_size()});
  }
  TUTTI_REQUIRE(!parameters.empty(), "DataParallel: the model has no parameter that requires a gradient");
}

void Reducer::State::install_hooks() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto& accumulator = parameters[i].accumulator = torch::autograd::impl::grad_accumulator(parameters[i].tensor);
    accumulator->add_post_hook(std::make_unique<Hook>([weak = weak_from_this(), i] {
      if (const auto state = weak.lock()) state->on_ready(i);
    }));
  }
}

void Reducer::State::make_buckets(const std::vector<std::size_t>& order) {
  std::vector<BucketItem> items;
  for (auto index : order)
    items.push_back({.bytes = parameters[index].bytes, .kind = int(parameters[index].tensor.scalar_type())});
  const std::size_t limits[] = {options.first_bucket_bytes, options.bucket_bytes};
  buckets.clear();
  for (const auto& places : assign_buckets(items, limits)) {
    Bucket bucket;
    for (auto place : places) {
      parameters[order[place]].bucket = buckets.size();
      bucket.parameters.push_back(order[place]);
      bucket.bytes += items[place].bytes;
    }
    pack_bucket(bucket);
    buckets.push_back(std::move(bucket));
  }
  begin_step();
}

// Gives every small gradient of the bucket a window in one flat range.
void Reducer::State::pack_bucket(Bucket& bucket) {
  const auto like = parameters[bucket.parameters.front()].tensor.options();
  const std::size_t granule = kFlatAlignment / std::size_t(like.dtype().itemsize());
  std::vector<std::pair<std::size_t, std::size_t>> places;  // parameter, offset in elements
  std::size_t count = 0;
  for (auto index : bucket.parameters) {
    parameters[index].window = at::Tensor();
    if (!options.gradients_as_views && parameters[index].bytes >= options.in_place_bytes) continue;
    places.emplace_back(index, count);
    count += (std::size_t(parameters[index].tensor.numel()) + granule - 1) / granule * granule;
  }
  if (places.empty()) return;
  bucket.flat = shared_tensor(count, like);
  for (const auto& [index, offset] : places) {
    auto& parameter = parameters[index];
    // from_blob and not narrow(): LibTorch 1.13's zero_grad() detaches gradients in place, which views forbid.
    auto* begin = static_cast<std::byte*>(bucket.flat.data_ptr()) + offset * std::size_t(like.dtype().itemsize());
    parameter.window = at::from_blob(
        begin, parameter.tensor.sizes(), parameter.tensor.strides(), [keep = bucket.flat](void*) {},
        like.requires_grad(false));
    if (options.gradients_as_views && parameter.tensor.grad().defined()) {
      parameter.window.copy_(parameter.tensor.grad());
      parameter.tensor.mutable_grad() = parameter.window;
    }
  }
}

at::Tensor Reducer::State::shared_tensor(std::size_t count, const at::TensorOptions& like) const {
  auto memory = group.allocate(count * std::size_t(like.dtype().itemsize())).or_throw();
  auto* data = memory.get();
  return at::from_blob(
             data, {std::int64_t(count)}, [memory](void*) {}, like.requires_grad(false))
      .zero_();
}

void Reducer::State::begin_step() {
  for (auto& parameter : parameters) {
    parameter.ready = parameter.packed = parameter.touched = false;
    parameter.reduced = at::Tensor();
  }
  for (auto& bucket : buckets) {
    bucket.waiting = bucket.parameters.size();
    bucket.works.clear();
  }
  next_bucket = 0;
  observed.clear();
}

void Reducer::State::on_ready(std::size_t index) {
  std::lock_guard lock(mutex);
  auto& parameter = parameters[index];
  parameter.touched = true;
  if (!sync) return;
  TUTTI_REQUIRE(!parameter.ready, "DataParallel: the gradient of ", parameter.name,
                " was made twice before finish(); call finish() after each backward(), ",
                "or accumulate inside no_sync()");
  parameter.ready = true;
  observed.push_back(index);
  --buckets[parameter.bucket].waiting;
  if (taker && parameter.window.defined()) pack(parameter);
  if (taker ? !taker->takes_in_backward() : !overlap) return;
  while (next_bucket < buckets.size() && buckets[next_bucket].waiting == 0) launch(buckets[next_bucket++]);
}

// Into its window. An optimizer that takes gradients has no use for a second copy.
void Reducer::State::pack(Parameter& parameter) {
  if (std::exchange(parameter.packed, true)) return;
  auto& gradient = parameter.tensor.mutable_grad();
  require_dense(parameter);
  if (!gradient.defined()) {
    parameter.window.zero_();
  } else if (gradient.data_ptr() != parameter.window.data_ptr()) {
    parameter.window.copy_(gradient);
    if (options.gradients_as_views) {
      gradient = parameter.window;
    } else if (taker) {
      gradient = at::Tensor();
    }
  }
}

void Reducer::State::require_dense(const Parameter& parameter) {
  const auto& gradient = parameter.tensor.grad();
  TUTTI_REQUIRE(!gradient.defined() || gradient.layout() == at::kStrided, "DataParallel: the gradient of ",
                parameter.name, " is sparse; expected a dense one");
}

// A parameter without a gradient takes part with zeros: other ranks may have used it.
void Reducer::State::launch(Bucket& bucket) {
  for (auto index : bucket.parameters) {
    auto& parameter = parameters[index];
    if (parameter.window.defined()) {
      pack(parameter);
      continue;
    }
    require_dense(parameter);
    // The layout must not depend on what a rank did: it is always the parameter's.
    const auto& gradient = parameter.tensor.grad();
    if (!gradient.defined()) {
      parameter.reduced = at::zeros_like(parameter.tensor);
    } else if (gradient.strides() == parameter.tensor.strides()) {
      parameter.reduced = gradient;
    } else {
      parameter.reduced = at::empty_like(parameter.tensor).copy_(gradient);
    }
    if (!taker) start(bucket, dense_bytes(parameter.reduced.detach(), "the gradient of " + parameter.name));
  }
  if (taker) {
    give_away(bucket);
  } else if (bucket.flat.defined()) {
    start(bucket, checked_bytes(bucket.flat, "a bucket of gradients"));
  }
}

void Reducer::State::give_away(const Bucket& bucket) {
  std::vector<TakenGradient> gradients;
  for (auto index : bucket.parameters) {
    auto& parameter = parameters[index];
    if (parameter.window.defined()) {
      gradients.push_back({index, parameter.window});
    } else {
      gradients.push_back({index, std::exchange(parameter.reduced, {})});
      if (taker->takes_in_backward()) parameter.tensor.mutable_grad() = at::Tensor();
    }
  }
  taker->take(gradients);
}

void Reducer::State::start(Bucket& bucket, const TensorBytes& bytes) {
  if (group.size() == 1) return;
  const Request request{.kind = Kind::kAllReduce,
                        .dtype = bytes.dtype,
                        .op = ReduceOp::kAvg,
                        .in = bytes.data,
                        .out = bytes.data,
                        .count = bytes.count};
  if (overlap) {
    bucket.works.push_back(group.submit(request));
  } else {
    group.run(request).or_throw();
  }
}

void Reducer::State::require_all_ready() {
  std::vector<std::string> missing;
  for (const auto& parameter : parameters) {
    if (!parameter.ready) missing.push_back(parameter.name);
  }
  if (missing.empty() || (options.find_unused && missing.size() < parameters.size())) return;
  const std::size_t count = missing.size();
  if (count > 8) missing.resize(8);
  Error error{.code = Code::kInvalidArgument, .group = group.name(), .rank = group.rank()};
  if (count == parameters.size()) {
    error.detail = "DataParallel::finish() found no gradient of this step";
    error.hint = "call it once after each backward(), of an output of forward()";
  } else {
    error.detail = fmt::format("{} of {} parameters got no gradient in this step: {}{}", count, parameters.size(),
                               join(missing, ", "), count > 8 ? ", ..." : "");
    error.hint = "let every parameter take part in the loss, or set DataParallelOptions::find_unused";
  }
  group.abort(error);
  throw Exception(error);
}

std::vector<std::uint8_t> Reducer::State::used_anywhere() {
  std::vector<std::uint8_t> used;
  for (const auto& parameter : parameters) used.push_back(parameter.touched);
  if (options.find_unused) all_reduce(group, std::span(used), ReduceOp::kMax);
  return used;
}

void Reducer::State::write_back(const Bucket& bucket, const std::vector<std::uint8_t>& used) {
  for (auto index : bucket.parameters) {
    auto& parameter = parameters[index];
    if (!used[index]) continue;
    auto& gradient = parameter.tensor.mutable_grad();
    const auto& average = parameter.window.defined() ? parameter.window : parameter.reduced;
    if (gradient.defined()) {
      if (gradient.data_ptr() != average.data_ptr()) gradient.copy_(average);
    } else {
      gradient = parameter.window.defined() && !options.gradients_as_views ? average.clone() : average;
    }
  }
}

void Reducer::State::adopt_observed_order() {
  order_is_final = true;
  std::vector<std::int64_t> order(observed.begin(), observed.end());
  broadcast(group, std::span(order), 0);
  make_buckets({order.begin(), order.end()});
}

Reducer::Reducer(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options)
    : state_(std::make_shared<State>(std::move(module), group, options)) {
  const at::NoGradGuard no_grad;
  auto& state = *state_;
  const int cores = prepare_compute(group);
  state.collect_parameters();
  if (group.size() > 1) {
    const auto tensors = without_repeats(tensors_of(*state.module));
    require_same_structure(group, tensors);
    broadcast_values(group, tensors);
  }
  if (options.heap_tensors) state.heap.emplace(group);
  state.overlap =
      options.overlap == Overlap::kOn || (options.overlap == Overlap::kAuto && cores > at::get_num_threads());
  std::vector<std::size_t> reversed(state.parameters.size());
  for (std::size_t i = 0; i < reversed.size(); ++i) reversed[i] = reversed.size() - 1 - i;
  state.make_buckets(reversed);
  state.install_hooks();
}

Reducer::~Reducer() {
  std::lock_guard lock(state_->mutex);
  for (auto& bucket : state_->buckets) {
    if (std::uncaught_exceptions() == 0) {
      for (const auto& work : bucket.works) (void)work.wait();
    }
    bucket.works.clear();  // in unwinding this ends them
  }
}

void Reducer::before_forward() {
  if (!at::GradMode::is_enabled() || !state_->module->is_training()) return;
  std::lock_guard lock(state_->mutex);
  auto& state = *state_;
  if (!state.sync) return;
  TUTTI_REQUIRE(state.observed.size() < state.parameters.size(),
                "DataParallel: forward() after a backward() without finish(): gradients were not averaged");
  const at::NoGradGuard no_grad;
  if (state.options.broadcast_buffers && state.group.size() > 1)
    broadcast_values(state.group, buffers_of(*state.module));
  if (!state.options.gradients_as_views) return;
  for (auto& parameter : state.parameters) {
    if (parameter.tensor.grad().defined()) continue;
    parameter.window.zero_();
    parameter.tensor.mutable_grad() = parameter.window;
  }
}

void Reducer::finish() {
  std::lock_guard lock(state_->mutex);
  auto& state = *state_;
  if (!state.sync) return;
  const auto begin = now();
  const at::NoGradGuard no_grad;
  state.group.status().or_throw();
  state.require_all_ready();
  while (state.next_bucket < state.buckets.size()) state.launch(state.buckets[state.next_bucket++]);
  Status status;
  for (const auto& bucket : state.buckets) {
    for (const auto& work : bucket.works) {
      if (auto ended = work.wait(); status.ok()) status = std::move(ended);
    }
  }
  status.or_throw();
  const auto used = state.used_anywhere();
  if (state.taker) {
    state.taker->taken(used);
  } else {
    for (const auto& bucket : state.buckets) state.write_back(bucket, used);
  }

  auto& totals = state.totals;
  ++totals.steps;
  totals.last_exposed_seconds = seconds_since(begin);
  totals.exposed_seconds += totals.last_exposed_seconds;
  if (!state.order_is_final && !state.options.find_unused) {
    state.adopt_observed_order();
  } else {
    state.begin_step();
  }
}

const Group& Reducer::group() const { return state_->group; }

std::vector<at::Tensor> Reducer::parameters() const {
  std::lock_guard lock(state_->mutex);
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : state_->parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

std::vector<std::string> Reducer::names() const {
  std::lock_guard lock(state_->mutex);
  std::vector<std::string> names;
  for (const auto& parameter : state_->parameters) names.push_back(parameter.name);
  return names;
}

bool Reducer::is_large(std::size_t parameter) const {
  std::lock_guard lock(state_->mutex);
  return !state_->parameters[parameter].window.defined();
}

void Reducer::attach_optimizer(GradientTaker& taker) {
  std::lock_guard lock(state_->mutex);
  TUTTI_REQUIRE(!state_->taker, "this DataParallel has a sharded optimizer already");
  state_->taker = &taker;
}

void Reducer::detach_optimizer() {
  std::lock_guard lock(state_->mutex);
  state_->taker = nullptr;
}

void Reducer::count_exposed(double seconds) {
  std::lock_guard lock(state_->mutex);
  state_->totals.last_exposed_seconds += seconds;
  state_->totals.exposed_seconds += seconds;
}

void Reducer::zero_grad() {
  std::lock_guard lock(state_->mutex);
  for (auto& parameter : state_->parameters) {
    parameter.tensor.mutable_grad() = at::Tensor();
    parameter.touched = parameter.ready;  // what is in flight is written back
  }
}

void Reducer::set_sync(bool on) {
  std::lock_guard lock(state_->mutex);
  state_->sync = on;
}

DataParallelStats Reducer::stats() const {
  std::lock_guard lock(state_->mutex);
  auto stats = state_->totals;
  stats.overlapped = state_->overlap;
  for (const auto& bucket : state_->buckets) {
    stats.bytes_per_step += bucket.bytes;
    auto& names = stats.buckets.emplace_back();
    for (auto index : bucket.parameters) names.push_back(state_->parameters[index].name);
  }
  return stats;
}

}  // namespace tutti
