// How gradients become averages.
//
// Each parameter has an AccumulateGrad node in autograd's graph; a hook behind it runs when its gradient of this
// backward is complete. Parameters are gathered in buckets, first in the reverse of their registration, which is
// roughly the order in which gradients come, and from the second step on in the order that was observed (rank 0's, so
// that all agree). A bucket is launched when all its gradients are there and all buckets before it were launched: the
// order on the group is then the same on every rank, whatever the order of hooks.
//
// When to launch is a question of cores. With a spare core per rank the engine thread reduces while backward computes
// (kOn). With none the two would only take turns on one core, so everything is launched in finish(), on the calling
// thread (kOff). Between hosts it is the wire that takes the time, while the engine thread sleeps, and on a GPU
// backward takes no core: kOn.
//
// A step ends in finish(), alike on every rank: buckets that are left, what features have to add, then the small
// exchanges that options ask for (was a gradient not finite, which parameters were used).
//
// This file, reducer_buckets.cc (where gradients are packed) and reducer_reduction.cc (how they become averages) are
// the core. It can be read without features/, each of which is one file behind the hooks of ReducerFeature.
#include "tutti/parallel/data_parallel/reducer/reducer.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/stream_calls.h"
#include "tutti/parallel/data_parallel/reducer/features/features.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/device_errors.h"

namespace tutti {

namespace {

void warn_of_unprepared_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    log::warn(
        fmt::format("DataParallel: this process was not prepared, so steps are slower: LibTorch computes with {} "
                    "threads on each rank, and gradients are copied before they are averaged (hint: make a "
                    "tutti::Compute of the world before the first operator)",
                    at::get_num_threads()));
  });
}

}  // namespace

Reducer::State::State(std::shared_ptr<torch::nn::Module> model, const Group& world, const DataParallelOptions& given)
    : module(std::move(model)), group(world), options(given), finite(world, given.finite_check) {}
Reducer::State::~State() = default;

Reducer::Reducer(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options)
    : state_(std::make_shared<State>(std::move(module), group, options)) {
  const at::NoGradGuard no_grad;
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  if (options.logical_ranks != 0) fix_compute_threads(fixed_compute_threads().value_or(1));
  const int cores = cores_of_rank(group);
  state.require_sensible_options();
  state.collect_parameters();
  if (!state.numbers_of(Route::kSparse).empty()) state.features.push_back(sparse_feature());
  state.require_no_excluded_pair();  // now that it is known which gradients are sparse
  const bool on_cpu = std::all_of(state.parameters.begin(), state.parameters.end(),
                                  [](const Parameter& parameter) { return parameter.tensor.device().is_cpu(); });
  if (on_cpu && !is_compute_prepared() && group.size() > 1 && group.rank() == 0) warn_of_unprepared_process();
  if (group.size() > 1) {
    require_same_options(group, "DataParallel", state.named_options());
    const auto tensors = state.not_ignored(without_repeats(tensors_of(*state.module)));
    require_same_structure(group, tensors);
    broadcast_values(group, tensors);
  }
  state.require_something_to_train();
  const bool gains = group.nodes() > 1 || !on_cpu || cores > at::get_num_threads();
  state.overlap = options.overlap == Overlap::kOn || (options.overlap == Overlap::kAuto && gains);
  state.launches_in_backward = state.overlap;
  if (group.size() > 1 && on_cpu && state.finite.checks_averages() && !options.hook && options.logical_ranks == 0)
    state.peers_average = all_reduce(group, std::int64_t(state.overlap), ReduceOp::kMax) == 0;
  if (options.logical_ranks != 0) state.features.push_back(logical_feature(state));  // before what packs the sums
  state.features.push_back(consumer_feature());
  if (options.hook) state.features.push_back(hook_feature());
  if (options.static_graph) state.features.push_back(static_graph_feature(state));
  if (!state.numbers_of(Route::kDelayed).empty()) state.features.push_back(delayed_feature(state));
  state.features.push_back(join_feature());
  auto order = state.numbers_of(Route::kBucket);
  std::reverse(order.begin(), order.end());
  state.make_buckets(order);
  state.install_hooks();
}

Reducer::~Reducer() {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  state.end_works(state.buckets);
  for (const auto& feature : state.features) feature->close(state);
}

// Works that are not waited for are cancelled.
void Reducer::State::end_works(std::vector<Bucket>& list) {
  for (auto& bucket : list) {
    if (!unwinding.is_past()) {
      for (const auto& work : bucket.works) (void)work.wait();
    }
    bucket.works.clear();
    bucket.finish_hook = nullptr;
  }
}

void Reducer::State::begin_step() {
  for (auto& parameter : parameters) {
    if (parameter.route == Route::kDelayed) continue;
    parameter.packed = parameter.touched = false;
    parameter.reduced = at::Tensor();
  }
  arrivals->begin_step();
  for (auto& bucket : buckets) bucket.waiting = bucket.parameters.size();
  next_bucket = 0;
}

void Reducer::State::on_gradient(std::size_t index) {
  const MutexLock lock(mutex);
  auto& parameter = parameters[index];
  parameter.touched = true;
  for (const auto& feature : features)
    if (!feature->takes_part(*this, index)) return;
  if (!sync) return;
  const auto arrival = arrivals->note(index);
  if (arrival == GradientArrivals::Arrival::kTooOften) reject_repeated_gradient(index);
  if (arrival == GradientArrivals::Arrival::kNotYet || parameter.route != Route::kBucket) return;
  --buckets[parameter.bucket].waiting;
  for (const auto& feature : features) feature->on_ready(*this, index, Give::kGradients);
  while (launches_in_backward && next_bucket < buckets.size() && buckets[next_bucket].waiting == 0)
    launch(buckets[next_bucket++], Give::kGradients);
}

void Reducer::before_forward() {
  if (!at::GradMode::is_enabled() || !state_->module->is_training()) return;
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  if (!state.sync) return;
  if (state.arrivals->all_came() && !state.arrivals->none_came())
    throw Exception(state.mistake("forward() after a backward() without finish(): the gradient of " +
                                      state.parameters[state.arrivals->order().front()].name +
                                      " and others were not averaged",
                                  "call finish() after each backward(), or accumulate inside no_sync()"));
  const at::NoGradGuard no_grad;
  for (const auto& feature : state.features)
    if (!feature->before_forward(state)) return;
  if (state.options.broadcast_buffers && state.group.size() > 1)
    broadcast_values(state.group, state.not_ignored(buffers_of(*state.module)), state.leader);
  if (!state.options.gradient_as_bucket_view) return;
  for (auto& parameter : state.parameters) {
    if (parameter.tensor.grad().defined() || !parameter.window.defined()) continue;
    parameter.window.zero_();
    parameter.tensor.mutable_grad() = parameter.window;
  }
}

void Reducer::check_batch(const at::Tensor& batch) const {
  const auto& state = *state_;
  if (state.options.allow_empty_batches || !at::GradMode::is_enabled() || !state.module->is_training()) return;
  if (!batch.defined() || batch.dim() == 0 || batch.size(0) > 0) return;
  const MutexLock lock(state.mutex);
  state.end_group("forward() was given a batch of no samples, " + describe(batch) +
                      ": the mean of its loss is NaN, and so would be the gradient of " +
                      state.parameters.front().name + " on every rank",
                  "give every rank samples; where ranks have different numbers of batches use join_uneven(); or set "
                  "allow_empty_batches if the loss is a sum");
}

void Reducer::finish() {
  report_device_errors(state_->group, "while gradients were averaged", nullptr, [this] {
    const MutexLock lock(state_->mutex);
    if (state_->sync) state_->finish_step(Give::kGradients);
  });
}

void Reducer::State::finish_step(Give give) {
  const auto begin = now();
  const at::NoGradGuard no_grad;
  group.status().or_throw();
  for (const auto& feature : features) feature->before_finish(*this);
  if (give == Give::kGradients) require_all_ready();
  while (next_bucket < buckets.size()) launch(buckets[next_bucket++], give);
  wait_for(buckets);
  await_stream_calls().or_throw();
  for (const auto& feature : features) feature->on_finish(*this, give);
  finite.forget();
  if (finite.is_on() && (writes_back || finite.checks_own())) finite.decide(parameters, give);
  // Which parameters are used is known without asking, unless ranks may differ in it.
  const auto used = used_anywhere(options.find_unused_parameters || arrivals->learning(), give);
  if (writes_back && give == Give::kGradients)
    for (const auto& bucket : buckets) write_back(bucket.parameters, used);
  for (const auto& feature : features) feature->end_step(*this, used, give);
  ++totals.steps;
  totals.last_exposed_seconds = seconds_since(begin);
  totals.exposed_seconds += totals.last_exposed_seconds;
  if (!order_is_final && !options.find_unused_parameters) {
    adopt_observed_order();
  } else {
    begin_step();
  }
  // On a rank without data it is for those with data to say what becomes of the step.
  if (finite.found() && finite.throws() && give == Give::kGradients) throw_non_finite();
}

// A rank that ran out of data saw nothing: the leader decides.
void Reducer::State::adopt_observed_order() {
  order_is_final = true;
  std::vector<std::int64_t> order;
  for (const auto index : arrivals->order())
    if (parameters[index].route == Route::kBucket) order.push_back(std::int64_t(index));
  std::size_t taking_part = 0;
  for (const auto index : numbers_of(Route::kBucket)) taking_part += arrivals->takes_part(index);
  order.resize(taking_part);
  broadcast(group, std::span(order), leader);
  totals.rebuilt = true;
  make_buckets({order.begin(), order.end()});
}

const Group& Reducer::group() const { return state_->group; }
const DataParallelOptions& Reducer::options() const { return state_->options; }

std::vector<at::Tensor> Reducer::parameters() const {
  const MutexLock lock(state_->mutex);
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : state_->parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

std::vector<std::string> Reducer::names() const {
  const MutexLock lock(state_->mutex);
  std::vector<std::string> names;
  for (const auto& parameter : state_->parameters) names.push_back(parameter.name);
  return names;
}

bool Reducer::is_large(std::size_t parameter) const {
  const MutexLock lock(state_->mutex);
  return !state_->parameters[parameter].window.defined();
}

void Reducer::count_exposed(double seconds) {
  const MutexLock lock(state_->mutex);
  state_->totals.last_exposed_seconds += seconds;
  state_->totals.exposed_seconds += seconds;
}

std::optional<NonFiniteGradient> Reducer::non_finite() const {
  const MutexLock lock(state_->mutex);
  return state_->finite.found();
}

void Reducer::set_gradient_scale(double scale) {
  const MutexLock lock(state_->mutex);
  state_->gradient_scale = scale;
}

void Reducer::zero_grad() {
  const MutexLock lock(state_->mutex);
  for (const auto& feature : state_->features) feature->on_zero_grad(*state_);
  for (auto& parameter : state_->ignored) parameter.mutable_grad() = at::Tensor();
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    auto& parameter = state_->parameters[i];
    bool keeps = false;
    for (const auto& feature : state_->features) keeps = keeps || feature->keeps_gradient(*state_, i);
    if (keeps) continue;
    parameter.tensor.mutable_grad() = at::Tensor();
    parameter.touched = state_->arrivals->came(i);  // what is in flight is written back
  }
}

void Reducer::set_sync(bool on) {
  const MutexLock lock(state_->mutex);
  if (!on) state_->require_no_excluded_pair(&DataParallelUse::no_sync);
  state_->sync = on;
}

void Reducer::take_gradients() {
  std::size_t count = 0;
  {
    const MutexLock lock(state_->mutex);
    state_->require_no_excluded_pair(&DataParallelUse::take_gradients);
    state_->sync = true;
    count = state_->parameters.size();
  }
  const at::NoGradGuard no_grad;
  while (count > 0) state_->on_gradient(--count);
}

DataParallelStats Reducer::stats() const {
  const MutexLock lock(state_->mutex);
  auto stats = state_->totals;
  stats.overlapped = state_->launches_in_backward;
  for (const auto& bucket : state_->buckets) {
    stats.bytes_per_step += bucket.bytes;
    auto& names = stats.buckets.emplace_back();
    for (auto index : bucket.parameters) names.push_back(state_->parameters[index].name);
  }
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    const auto& parameter = state_->parameters[i];
    if (parameter.route == Route::kSparse) stats.sparse.push_back(parameter.name);
    if (parameter.route == Route::kDelayed) stats.delayed.push_back(parameter.name);
    if (parameter.route != Route::kDelayed && !state_->arrivals->takes_part(i)) stats.unused.push_back(parameter.name);
  }
  return stats;
}

}  // namespace tutti
