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
// thread (kOff). Between hosts it is the wire that takes the time, while the engine thread sleeps: kOn.
//
// A step ends in finish(), alike on every rank: buckets that are left, results of hooks, sparse gradients one by one,
// then the small exchanges that options ask for (was a gradient not finite, which parameters were used).
//
// The parts: which gradients are there, parallel/data_parallel/gradient_arrivals; what shares a bucket,
// parallel/data_parallel/buckets; where gradients lie, reducer_buckets.cc; what is done to them, reducer_reduction.cc;
// NaN and infinity, reducer_finite.cc; what is wrong, reducer_checks.cc; who has run out of data, reducer_join.cc;
// several ranks of one process, reducer_logical.cc.
#include "tutti/parallel/data_parallel/reducer/reducer.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/reducer/reducer_state.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/compute.h"

namespace tutti {

Reducer::State::State(std::shared_ptr<torch::nn::Module> model, const Group& world, const DataParallelOptions& given)
    : module(std::move(model)), group(world), options(given) {}

Reducer::Reducer(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options)
    : state_(std::make_shared<State>(std::move(module), group, options)) {
  const at::NoGradGuard no_grad;
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  if (options.logical_ranks != 0) fix_compute_threads(fixed_compute_threads().value_or(1));
  const int cores = prepare_compute(group);
  state.require_sensible_options();
  state.collect_parameters();
  state.require_no_excluded_pair();  // now that it is known which gradients are sparse
  if (group.size() > 1) {
    require_same_options(group, "DataParallel", state.named_options());
    const auto tensors = state.not_ignored(without_repeats(tensors_of(*state.module)));
    require_same_structure(group, tensors);
    broadcast_values(group, tensors);
  }
  state.require_something_to_train();
  if (options.logical_ranks != 0) state.logical.emplace(group, options.logical_ranks, state.parameters.size());
  if (options.heap_tensors) state.heap.emplace(group);
  const bool gains = group.nodes() > 1 || cores > at::get_num_threads();
  state.overlap = options.overlap == Overlap::kOn || (options.overlap == Overlap::kAuto && gains);
  if (group.size() > 1 && state.looks_in_reduction() && !options.hook && !state.logical)
    state.peers_average = all_reduce(group, std::int64_t(state.overlap), ReduceOp::kMax) == 0;
  auto order = state.numbers_of(Travel::kBucket);
  std::reverse(order.begin(), order.end());
  state.make_buckets(order);
  state.delayed_buckets = state.buckets_of(state.numbers_of(Travel::kDelayed));
  state.install_hooks();
}

Reducer::~Reducer() {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  for (auto* list : {&state.buckets, &state.delayed_buckets}) {
    for (auto& bucket : *list) {
      if (!state.unwinding.is_past()) {
        for (const auto& work : bucket.works) (void)work.wait();
      }
      bucket.works.clear();  // where they were not waited for this ends them
      bucket.finish_hook = nullptr;
    }
  }
}

void Reducer::State::begin_step() {
  for (auto& parameter : parameters) {
    if (parameter.travel == Travel::kDelayed) continue;
    parameter.packed = parameter.touched = false;
    parameter.reduced = at::Tensor();
  }
  arrivals->begin_step();
  for (auto& bucket : buckets) bucket.waiting = bucket.parameters.size();
  next_bucket = 0;
}

void Reducer::State::on_ready(std::size_t index) {
  const MutexLock lock(mutex);
  auto& parameter = parameters[index];
  parameter.touched = true;
  if (parameter.travel == Travel::kDelayed) {
    delayed_were_averaged = false;
    return;
  }
  if (!reduces_in_backward()) return;
  const auto arrival = arrivals->note(index);
  if (arrival == GradientArrivals::Arrival::kTooOften) tell_too_often(index);
  if (arrival == GradientArrivals::Arrival::kNotYet || parameter.travel != Travel::kBucket) return;
  --buckets[parameter.bucket].waiting;
  add_logical_ranks(index);
  if (taker && parameter.window.defined()) fill_window(index, Give::kGradients);
  if (taker ? !taker->takes_in_backward() : !overlap) return;
  while (next_bucket < buckets.size() && buckets[next_bucket].waiting == 0)
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
  if (state.logical) return state.require_logical_turn("forward()", false);  // begin_logical_rank() saw to the buffers
  if (state.joining) state.joining->now = state.turn(true);
  if (state.options.broadcast_buffers && state.group.size() > 1)
    broadcast_values(state.group, state.not_ignored(buffers_of(*state.module)),
                     state.joining ? state.joining->now.root : 0);
  if (!state.options.gradients_as_views) return;
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
  const MutexLock lock(state_->mutex);
  if (state_->sync) state_->finish_step(State::Give::kGradients);
}

void Reducer::State::finish_step(Give give) {
  const auto begin = now();
  const at::NoGradGuard no_grad;
  group.status().or_throw();
  if (logical) require_logical_turn("finish()", true);
  if (give == Give::kGradients) require_all_ready();
  while (next_bucket < buckets.size()) launch(buckets[next_bucket++], give);
  wait_for(buckets);
  average_sparse_ones(give);
  non_finite.reset();
  decide_on_non_finite(give);
  // Which parameters are used is known without asking, unless ranks may differ in it.
  const auto used = used_anywhere(options.find_unused || arrivals->learning(), give);
  if (taker) {
    taker->taken(used, average_factor());
  } else if (give == Give::kGradients) {
    for (const auto& bucket : buckets) write_back_all(bucket.parameters, used);
    write_back_all(numbers_of(Travel::kSparse), used);
  }
  if (logical) {
    logical->end_step_of(shared_buffers());
    logical->end_step();
  }
  ++totals.steps;
  totals.last_exposed_seconds = seconds_since(begin);
  totals.exposed_seconds += totals.last_exposed_seconds;
  if (arrivals->learning()) learn_static_graph(give);
  if (!order_is_final && !options.find_unused) {
    adopt_observed_order();
  } else {
    begin_step();
  }
  // In shadow it is for those with data to say what becomes of it.
  if (non_finite && throws_on_non_finite() && give == Give::kGradients) tell_non_finite();
}

// How often each gradient came has to be the same on every rank that had data.
void Reducer::State::learn_static_graph(Give give) {
  constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
  auto least = arrivals->counts(), most = least;
  if (give == Give::kZeros) std::fill(least.begin(), least.end(), kAny);
  all_reduce(group, std::span(least), ReduceOp::kMin);
  all_reduce(group, std::span(most), ReduceOp::kMax);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (least[i] != most[i]) tell_differing_graphs(i, give);
  }
  arrivals->learn(most);
  for (const auto index : numbers_of(Travel::kDelayed)) arrivals->leave_out(index);
}

// A rank that ran out of data saw nothing: one that has some decides.
void Reducer::State::adopt_observed_order() {
  order_is_final = true;
  std::vector<std::int64_t> order;
  for (const auto index : arrivals->order())
    if (parameters[index].travel == Travel::kBucket) order.push_back(std::int64_t(index));
  if (joining) {
    std::size_t taking_part = 0;
    for (const auto index : numbers_of(Travel::kBucket)) taking_part += arrivals->takes_part(index);
    order.resize(taking_part);
  }
  broadcast(group, std::span(order), joining ? joining->now.root : 0);
  totals.rebuilt = true;
  make_buckets({order.begin(), order.end()});
}

void Reducer::average_delayed() {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  const at::NoGradGuard no_grad;
  state.group.status().or_throw();
  const auto numbers = state.numbers_of(Travel::kDelayed);
  for (auto& bucket : state.delayed_buckets) state.launch(bucket, State::Give::kGradients);
  state.wait_for(state.delayed_buckets);
  const bool is_bad = state.decide_on_non_finite(State::Give::kGradients);
  const auto used = state.used_anywhere(true, State::Give::kGradients);
  state.write_back_all(numbers, used);
  for (const auto index : numbers) {
    state.parameters[index].packed = state.parameters[index].touched = false;
    state.parameters[index].reduced = at::Tensor();
  }
  state.delayed_were_averaged = true;
  if (is_bad && state.throws_on_non_finite()) state.tell_non_finite();
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

void Reducer::attach_optimizer(GradientTaker& taker) {
  const MutexLock lock(state_->mutex);
  TUTTI_REQUIRE(!state_->taker, "this DataParallel has a sharded optimizer already");
  state_->require_what_a_taker_can_have();
  state_->taker = &taker;
}

void Reducer::detach_optimizer() {
  const MutexLock lock(state_->mutex);
  state_->taker = nullptr;
}

void Reducer::count_exposed(double seconds) {
  const MutexLock lock(state_->mutex);
  state_->totals.last_exposed_seconds += seconds;
  state_->totals.exposed_seconds += seconds;
}

std::optional<NonFiniteGradient> Reducer::non_finite() const {
  const MutexLock lock(state_->mutex);
  return state_->non_finite;
}

void Reducer::set_gradient_scale(double scale) {
  const MutexLock lock(state_->mutex);
  state_->gradient_scale = scale;
}

void Reducer::set_after_shadow_step(std::function<void()> act) {
  const MutexLock lock(state_->mutex);
  state_->after_shadow_step = std::move(act);
}

void Reducer::zero_grad() {
  const MutexLock lock(state_->mutex);
  if (state_->logical) state_->logical->end_step();
  for (auto& parameter : state_->ignored) parameter.mutable_grad() = at::Tensor();
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    auto& parameter = state_->parameters[i];
    if (parameter.travel == Travel::kDelayed && !state_->delayed_were_averaged) continue;
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
  while (count > 0) state_->on_ready(--count);
}

DataParallelStats Reducer::stats() const {
  const MutexLock lock(state_->mutex);
  auto stats = state_->totals;
  stats.overlapped = state_->taker ? state_->taker->takes_in_backward() : state_->overlap;
  for (const auto& bucket : state_->buckets) {
    stats.bytes_per_step += bucket.bytes;
    auto& names = stats.buckets.emplace_back();
    for (auto index : bucket.parameters) names.push_back(state_->parameters[index].name);
  }
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    const auto& parameter = state_->parameters[i];
    if (parameter.travel == Travel::kSparse) stats.sparse.push_back(parameter.name);
    if (parameter.travel == Travel::kDelayed) stats.delayed.push_back(parameter.name);
    if (parameter.travel != Travel::kDelayed && !state_->arrivals->takes_part(i))
      stats.unused.push_back(parameter.name);
  }
  return stats;
}

}  // namespace tutti
