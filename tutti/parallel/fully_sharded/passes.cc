// When weights are needed. LibTorch's C++ modules have no hooks, so a block is run by run_block(), which gathers before
// and releases after. For backward() a hook is on the node that made the block's result: it runs before any other node
// of the block, and gathers. When all gradients of the block have come, every node that reads its weights has run,
// since the gradient of a weight is made from all its uses: then they are released, and the gradients averaged. Only
// frozen weights can be read later, so a block that has some waits for the block before it.
//
// The root holds what is in no block. It is gathered when forward() begins, and released when its gradients are
// complete.
//
// Ranks may differ in what a backward() uses, and then in the order in which blocks are complete. So reductions have an
// order of their own, from the last block that ran to the first, then the root; a block that is not complete holds back
// those before it until finish(), which fills up with zeros. Gathers are in the order of the blocks' runs, on another
// group: no rank waits for one kind in the middle of the other.
//
// A block inside recompute() runs without a graph in forward(), and again, with one, in backward(): it is gathered both
// times, and the second run is the one that counts.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/fully_sharded/fully_sharded_state.h"

namespace tutti {
namespace {

using fully_sharded::kRoot;
using torch::autograd::variable_list;

constexpr std::size_t kReductionsInFlight = 2;  // each holds the gradients of a block

class BeforeNode final : public torch::autograd::FunctionPreHook {
 public:
  explicit BeforeNode(std::function<void()> act) : act_(std::move(act)) {}
  variable_list operator()(const variable_list& gradients) override {
    act_();
    return gradients;
  }

 private:
  std::function<void()> act_;
};

// The forward passes of this thread, innermost last.
struct Scope {
  std::shared_ptr<ShardedModule::State> state;
  bool in_backward = false;  // a block that runs again
};
thread_local std::vector<Scope> scopes;

}  // namespace

// ---- Forward

at::Tensor ShardedModule::State::cast(at::Tensor value, std::optional<DType> type) const {
  if (!type || !value.defined() || !at::isFloatingType(value.scalar_type())) return value;
  return value.to(fully_sharded::floating_type(*type, "a type"));
}

std::optional<std::size_t> ShardedModule::State::block_of(const torch::nn::Module& wanted) const {
  const MutexLock lock(mutex);
  const auto known = by_module.find(&wanted);
  return ended || known == by_module.end() ? std::nullopt : std::optional(known->second);
}

void ShardedModule::State::begin_forward() {
  const bool records = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  if (ended) return;
  if (depth > 0) {
    ++depth;
    return;
  }
  auto& root = blocks[kRoot];
  if (records) {
    TUTTI_REQUIRE(!finished, "FullySharded: forward() runs between clip_grad_norm() and step(); call step() or ",
                  "zero_grad() first");
    end_pass();
    records_pass = true;
    root.ran = true;
    root.reduced = false;
    root.waiting = root.weights->shards().size();
  }
  publish_written();
  next = 0;
  root.weights->gather();
  ++depth;
}

void ShardedModule::State::end_forward() {
  const MutexLock lock(mutex);
  if (ended || --depth > 0) return;
  const auto& root = *blocks[kRoot].weights;
  const bool is_needed = records_pass && (blocks[kRoot].waiting > 0 || !root.all_trained());
  if (!at::GradMode::is_enabled() && !is_needed) blocks[kRoot].weights->release();
}

void ShardedModule::State::enter(std::size_t block, bool in_backward) {
  const bool records = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  auto& running = blocks[block];
  running.entered = true;
  if (!in_backward) runs = runs * 0x9E3779B97F4A7C15u + block;
  if (records) {
    running.ran = true;
    running.reduced = false;
    running.waiting = running.weights->shards().size();
    if (running.pass != pass) running.first = order.size();
    running.pass = pass;
    order.push_back(block);
    runs_again = runs_again || in_backward;
  }
  running.weights->begin_gather();
  gather_beside(block, in_backward);  // before the wait, so that gathers follow one another without a gap
  running.weights->gather();
}

// The next blocks; in backward(), where a block runs again, those before.
void ShardedModule::State::gather_beside(std::size_t block, bool in_backward) {
  auto at = std::find(expected.begin() + std::ptrdiff_t(in_backward ? 0 : next), expected.end(), block);
  if (at == expected.end()) at = std::find(expected.begin(), expected.end(), block);
  if (at == expected.end()) return;
  const auto position = std::size_t(at - expected.begin()), ahead = std::size_t(options.prefetch);
  if (in_backward) {
    for (std::size_t k = 1; k <= ahead && k <= position; ++k) blocks[expected[position - k]].weights->begin_gather();
    return;
  }
  next = position + 1;
  for (std::size_t k = next; k < expected.size() && k < next + ahead; ++k) blocks[expected[k]].weights->begin_gather();
}

void ShardedModule::State::leave(std::size_t block, const at::Tensor& out, bool in_backward) {
  const MutexLock lock(mutex);
  auto& weights = *blocks[block].weights;
  TUTTI_REQUIRE(out.defined(), "FullySharded: block ", weights.name(), " returned no tensor");
  const bool comes_back = at::GradMode::is_enabled() && out.requires_grad() && out.grad_fn();
  if (comes_back)
    out.grad_fn()->add_pre_hook(
        std::make_unique<BeforeNode>([weak = weak_from_this(), of_pass = pass, position = order.size() - 1, block] {
          if (const auto state = weak.lock()) state->enter_backward(of_pass, position, block);
        }));
  // With the last block backward() begins at once.
  const bool is_last = next >= expected.size();
  if (!comes_back || !(in_backward || is_last || !options.reshard_after_forward)) weights.release();
}

// ---- Backward

// Autograd runs the nodes that were made last first: when it comes to the end of this block it is through with those
// after it.
void ShardedModule::State::enter_backward(std::size_t of_pass, std::size_t position, std::size_t block) {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  if (ended) return;
  if (of_pass == pass) {
    if (!gathered_back) gathered_back = order.size();
    gather_back_to(position);
    for (std::size_t later = position + 1; later < order.size(); ++later)
      if (auto& running = blocks[order[later]]; running.first > position) running.weights->release();
    gather_back_to(position - std::min(position, std::size_t(options.prefetch)));
  }
  blocks[block].weights->gather();
}

void ShardedModule::State::gather_back_to(std::size_t position) {
  while (*gathered_back > position) blocks[order[--*gathered_back]].weights->begin_gather();
}

// Whatever this rank has not used in the pass, it takes part with.
void ShardedModule::State::end_pass() {
  if (!gathered_back) gathered_back = order.size();
  gather_back_to(0);
  for (auto& running : blocks) running.weights->release();
  reduce_what_is_complete(true);
  bool repeats = runs_again || order.size() < expected.size();
  for (std::size_t k = 0; k < order.size(); ++k) repeats = repeats || blocks[order[k]].first != k;
  if (!repeats) expected = order;
  order.clear();
  gathered_back.reset();
  records_pass = runs_again = false;
  ++pass;
}

void ShardedModule::State::on_gradient(std::size_t block, std::size_t shard) {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  if (ended) return;
  auto& running = blocks[block];
  const std::size_t number = running.first_shard + shard;
  const at::Tensor taken = running.weights->take_gradient(shard);
  if (taken.defined() && options.finite_check != FiniteCheck::kOff)
    findings.check(taken, {number, group.global_rank()});
  used[number] = 1;
  if (running.reduced) {  // it ran more than once
    running.reduced = false;
    running.waiting = running.weights->shards().size();
  }
  if (running.waiting > 0) --running.waiting;
  if (running.waiting > 0) return;
  if (running.weights->all_trained()) running.weights->release();
  reduce_what_is_complete(false);
}

void ShardedModule::State::begin_reduce(std::size_t block) {
  auto& running = blocks[block];
  if (!running.ran || running.reduced || running.weights->shards().empty()) return;
  running.weights->begin_reduce();
  running.reduced = true;
  in_flight.push_back(block);
  if (in_flight.size() <= kReductionsInFlight) return;
  blocks[in_flight.front()].weights->pass_on_reduce();
  in_flight.erase(in_flight.begin());
}

void ShardedModule::State::reduce_what_is_complete(bool all) {
  for (std::size_t k = order.size(); k-- > 0;) {
    const auto& running = blocks[order[k]];
    if (!running.reduced && running.waiting > 0 && !all) return;
    begin_reduce(order[k]);
  }
  if (all) {
    for (std::size_t b = blocks.size(); b-- > 0;) begin_reduce(b);  // of passes before this one too
  } else if (blocks[kRoot].waiting == 0) {
    begin_reduce(kRoot);
  }
}

// ---- Forward passes of a thread

namespace fully_sharded {

ForwardScope::ForwardScope(std::shared_ptr<ShardedModule::State> state) : state_(std::move(state)) {
  state_->begin_forward();
  scopes.push_back({state_});
}
ForwardScope::~ForwardScope() {
  scopes.pop_back();
  state_->end_forward();
}

void ForwardScope::check_batch(const at::Tensor& x) const { state_->check_batch(x); }
at::Tensor ForwardScope::input(at::Tensor value) const {
  const auto& policy = state_->options.mixed_precision;
  return policy.cast_forward_inputs ? state_->cast(std::move(value), policy.param_dtype) : value;
}
at::Tensor ForwardScope::output(at::Tensor value) const {
  return state_->cast(std::move(value), state_->options.mixed_precision.output_dtype);
}

at::Tensor ForwardScope::run_sequence(at::Tensor x) const {
  for (torch::nn::AnyModule& child : dynamic_cast<torch::nn::SequentialImpl&>(*state_->module)) {
    BlockRun run(*child.ptr());
    if (!run.is_sharded()) {
      x = child.forward<at::Tensor>(std::move(x));
      continue;
    }
    x = child.forward<at::Tensor>(run.input(std::move(x)));
    run.end(x);
  }
  return x;
}

void ForwardScope::explain(const std::exception& error) const {
  if (std::string_view(error.what()).find("not allocated yet") == std::string_view::npos) return;
  const MutexLock lock(state_->mutex);
  for (const auto& running : state_->blocks) {
    if (running.module == state_->module.get() || running.entered || running.weights->empty()) continue;
    throw Exception(invalid_argument(
        fmt::format("FullySharded: the weights of block {} are used, and run_block() was not called for it",
                    running.weights->name()),
        "call its forward() by tutti::run_block(block, ...) in the model's forward(), or name no such block"));
  }
}

ForwardPass current_forward() { return scopes.empty() ? ForwardPass() : ForwardPass(scopes.back().state); }

ForwardAgain::ForwardAgain(const ForwardPass& pass) : state_(pass.lock()) {
  if (state_) scopes.push_back({.state = state_, .in_backward = true});
}
ForwardAgain::~ForwardAgain() {
  if (state_) scopes.pop_back();
}

BlockRun::BlockRun(const torch::nn::Module& block) {
  for (std::size_t k = scopes.size(); k-- > 0 && !state_;) {
    const auto number = scopes[k].state->block_of(block);
    if (!number) continue;
    state_ = scopes[k].state;
    in_backward_ = scopes[k].in_backward;
    block_ = *number;
  }
  if (state_) state_->enter(block_, in_backward_);
}
at::Tensor BlockRun::input(at::Tensor value) const {
  const auto& policy = state_->options.mixed_precision;
  return policy.cast_forward_inputs ? state_->cast(std::move(value), policy.param_dtype) : value;
}
void BlockRun::end(const at::Tensor& out) { state_->leave(block_, out, in_backward_); }

}  // namespace fully_sharded

at::Tensor run_block_by(const torch::nn::Module& block, const std::function<at::Tensor()>& forward) {
  fully_sharded::BlockRun run(block);
  at::Tensor out = forward();
  if (run.is_sharded()) run.end(out);
  return out;
}

}  // namespace tutti
