// Who tells when weights are needed. LibTorch's C++ modules have no hooks, so a block is run through run(), which
// gathers before and releases after. For backward() a hook stands before the node that made the block's result: it
// runs before any other node of the block, and gathers. When all gradients of the block have come, every node that
// reads its weights has run, since the gradient of a weight is made from all its uses: then they are released, and the
// gradients averaged. Only frozen weights can be read later, so a block that has some waits for the block before it.
//
// Ranks may differ in what a backward() uses, and then in the order in which blocks are complete. Reductions have an
// order of their own therefore, from the last block that ran to the first; a block that is not complete holds back
// those before it until finish(), which fills up with zeros. Gathers are in the order of the blocks' runs, on another
// group: no rank waits for one kind in the middle of the other.
#include "tutti/parallel/fully_sharded/fully_sharded.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <unordered_map>

#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/fully_sharded/fully_sharded_state.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/gradient_hook.h"

namespace tutti {
namespace {

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

std::vector<NamedTensor> named_in(const FullySharded::Block& block, std::vector<NamedTensor> tensors) {
  for (auto& tensor : tensors) tensor.name = block.name + "." + tensor.name;
  return without_repeats(std::move(tensors));
}

std::vector<FullySharded::Block> blocks_of(const torch::nn::Sequential& model) {
  std::vector<FullySharded::Block> blocks;
  for (const auto& child : model->named_children()) blocks.push_back({child.key(), child.value()});
  return blocks;
}

Group beside(const Group& group, const std::string& name) {
  return group.size() == 1 ? group : group.split(0, group.rank(), name).or_throw();
}

}  // namespace

FullySharded::State::State(const Group& with, const FullyShardedOptions& given)
    : group(with), options(given), groups{beside(with, "gathers"), beside(with, "reductions")} {
  TUTTI_REQUIRE(options.prefetch >= 0, "FullySharded: prefetch is ", options.prefetch,
                "; expected how many blocks to gather ahead, 0 or more");
}

void FullySharded::State::add_blocks(std::vector<Block> given) {
  const at::NoGradGuard no_grad;
  prepare_compute(group);
  std::vector<std::vector<NamedTensor>> parameters;
  std::vector<NamedTensor> all, buffers;
  std::unordered_map<const c10::TensorImpl*, std::string> owners;
  for (const auto& block : given) {
    TUTTI_REQUIRE(block.module, "FullySharded: block ", block.name, " has no module");
    parameters.push_back(named_in(block, parameters_of(*block.module)));
    for (const auto& [name, tensor] : parameters.back()) {
      const auto [owner, first] = owners.emplace(tensor.unsafeGetTensorImpl(), name);
      TUTTI_REQUIRE(first, "FullySharded: the parameter ", name, " is ", owner->second,
                    " of another block; put both modules into one block");
      all.push_back({name, tensor});
    }
    for (auto& buffer : named_in(block, buffers_of(*block.module))) buffers.push_back(std::move(buffer));
  }
  const bool trains = std::any_of(all.begin(), all.end(), [](const auto& p) { return p.tensor.requires_grad(); });
  TUTTI_REQUIRE(trains, "FullySharded: no block has a parameter that requires a gradient");
  require_same_options(
      group, "FullySharded",
      {{"prefetch", fmt::format("{}", options.prefetch)},
       {"share_on_host", fmt::format("{}", options.share_on_host)},
       {"heap_tensors", fmt::format("{}", options.heap_tensors)}});
  require_same_structure(group, all);
  require_same_structure(group, buffers);
  broadcast_values(group, buffers);
  if (options.heap_tensors) heap.emplace(group);
  const bool shared = options.share_on_host && group.nodes() == 1;
  const MutexLock lock(mutex);
  for (std::size_t b = 0; b < given.size(); ++b) {
    Running& running = blocks.emplace_back();
    running.module = given[b].module;
    running.first_shard = shard_count;
    running.weights = std::make_unique<ShardedBlock>(given[b].name, std::move(parameters[b]), groups, int(b), shared);
    shard_count += running.weights->shards().size();
  }
  used.assign(shard_count, 0);
  gathered_back = blocks.size();
  for (std::size_t b = 0; b < blocks.size(); ++b) install_hooks(b);
}

void FullySharded::State::check_batch(const at::Tensor& x) const {
  if (options.allow_empty_batches || !at::GradMode::is_enabled()) return;
  if (!x.defined() || x.dim() == 0 || x.size(0) > 0) return;
  Error error{.code = Code::kInvalidArgument,
              .detail = "FullySharded: forward() was given a batch of no samples, " + describe(x) +
                        ": the mean of its loss is NaN, and so would be all gradients on every rank",
              .hint = "give every rank samples, or set allow_empty_batches if the loss is a sum",
              .group = group.name(),
              .rank = group.rank()};
  for (const Group& each : {group, groups.gathers, groups.reductions}) each.abort(error);  // wherever peers wait
  throw Exception(std::move(error));
}

void FullySharded::State::install_hooks(std::size_t block) {
  auto& running = blocks[block];
  for (std::size_t k = 0; k < running.weights->shards().size(); ++k) {
    running.accumulators.push_back(after_gradient(running.weights->trained(k), [weak = weak_from_this(), block, k] {
      if (const auto state = weak.lock()) state->on_gradient(block, k);
    }));
  }
}

void FullySharded::State::enter(std::size_t block) {
  const MutexLock lock(mutex);
  TUTTI_REQUIRE(block < blocks.size(), "FullySharded: run() of block ", block, "; there are ", blocks.size());
  auto& running = blocks[block];
  if (at::GradMode::is_enabled()) {
    TUTTI_REQUIRE(!finished, "FullySharded: block ", running.weights->name(),
                  " runs between clip_grad_norm() and step(); call step() or zero_grad() first");
    if (running.pass == pass) end_pass();
    running.ran = true;
    running.pass = pass;
    running.reduced = false;
    running.waiting = running.weights->shards().size();
  }
  running.weights->gather();
  const std::size_t end = std::min(blocks.size(), block + 1 + std::size_t(options.prefetch));
  for (std::size_t next = block + 1; next < end; ++next) blocks[next].weights->begin_gather();
}

void FullySharded::State::leave(std::size_t block, const at::Tensor& out) {
  const MutexLock lock(mutex);
  auto& running = blocks[block];
  TUTTI_REQUIRE(out.defined(), "FullySharded: block ", running.weights->name(), " returned no tensor");
  const bool comes_back = at::GradMode::is_enabled() && out.requires_grad() && out.grad_fn();
  if (comes_back)
    out.grad_fn()->add_pre_hook(std::make_unique<BeforeNode>([weak = weak_from_this(), block] {
      if (const auto state = weak.lock()) state->enter_backward(block);
    }));
  // With the last block backward() begins at once.
  if (!comes_back || block + 1 < blocks.size()) running.weights->release();
}

// Autograd runs the nodes that were made last first: when it comes to the end of this block it is through with those
// after it.
void FullySharded::State::enter_backward(std::size_t block) {
  const MutexLock lock(mutex);
  const at::NoGradGuard no_grad;
  gather_back_to(block);
  for (std::size_t later = block + 1; later < blocks.size(); ++later) blocks[later].weights->release();
  gather_back_to(block - std::min(block, std::size_t(options.prefetch)));
  blocks[block].weights->gather();
}

void FullySharded::State::gather_back_to(std::size_t block) {
  while (gathered_back > block) {
    auto& running = blocks[--gathered_back];
    if (running.ran && running.pass == pass) running.weights->begin_gather();
  }
}

// Whatever this rank has not used in it, it takes part with.
void FullySharded::State::end_pass() {
  const at::NoGradGuard no_grad;
  gather_back_to(0);
  for (auto& running : blocks) running.weights->release();
  reduce_what_is_complete(true);
  gathered_back = blocks.size();
  ++pass;
}

void FullySharded::State::on_gradient(std::size_t block, std::size_t shard) {
  const MutexLock lock(mutex);
  const at::NoGradGuard no_grad;
  auto& running = blocks[block];
  const std::size_t number = running.first_shard + shard;
  running.weights->take_gradient(shard, non_finite, number);
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

void FullySharded::State::reduce_what_is_complete(bool all) {
  for (std::size_t b = blocks.size(); b-- > 0;) {
    auto& running = blocks[b];
    if (!running.ran || running.reduced || running.weights->shards().empty()) continue;
    if (running.waiting > 0 && !all) return;
    running.weights->begin_reduce();
    running.reduced = true;
    in_flight.push_back(b);
    if (in_flight.size() <= kReductionsInFlight) continue;
    blocks[in_flight.front()].weights->end_reduce();
    in_flight.erase(in_flight.begin());
  }
}

void FullySharded::State::finish() {
  const MutexLock lock(mutex);
  if (finished) return;
  group.status().or_throw();
  if (std::none_of(used.begin(), used.end(), [](auto any) { return any != 0; })) {
    Error error{.code = Code::kInvalidArgument,
                .detail = "ShardedOptimizer: the FullySharded model has no gradient of this step",
                .hint = "call backward() on what its blocks returned before step()",
                .group = group.name(),
                .rank = group.rank()};
    group.abort(error);
    throw Exception(error);
  }
  end_pass();
  in_flight.clear();
  for (auto& running : blocks) {
    running.weights->end_reduce();
    running.ran = false;
  }
  all_reduce(groups.gathers, std::span(used), ReduceOp::kMax);
  finished = true;
}

void FullySharded::State::forget() {
  const MutexLock lock(mutex);
  for (auto& running : blocks) {
    running.weights->forget_gradients();
    running.ran = false;
  }
  in_flight.clear();
  ++pass;
  gathered_back = blocks.size();
  std::fill(used.begin(), used.end(), 0);
  non_finite = {};
  finished = false;
}

FullySharded::FullySharded(std::vector<Block> blocks, const Group& group, FullyShardedOptions options)
    : state_(std::make_shared<State>(group, options)) {
  state_->add_blocks(std::move(blocks));
}

FullySharded::FullySharded(const torch::nn::Sequential* model, const Group& group, FullyShardedOptions options)
    : FullySharded(blocks_of(*model), group, options) {
  for (const auto& module : **model)
    state_->sequence.push_back([module = torch::nn::AnyModule(module)](at::Tensor x) mutable {
      return module.forward<at::Tensor>(std::move(x));
    });
}

FullySharded::~FullySharded() {
  // The peers may still be reading weights that lie in this rank's memory.
  if (!state_->unwinding.is_past() && shared() && state_->group.status().ok())
    (void)state_->group.run({.kind = Kind::kBarrier});
  const MutexLock lock(state_->mutex);
  state_->blocks.clear();
}

at::Tensor FullySharded::forward(at::Tensor x) {
  TUTTI_REQUIRE(!state_->sequence.empty(),
                "FullySharded::forward() is for a Sequential; run the blocks of another model by run()");
  state_->check_batch(x);
  for (std::size_t b = 0; b < state_->sequence.size(); ++b)
    x = run(b, [&] { return state_->sequence[b](std::move(x)); });
  return x;
}

void FullySharded::enter(std::size_t block) { state_->enter(block); }
void FullySharded::leave(std::size_t block, const at::Tensor& out) { state_->leave(block, out); }

std::size_t FullySharded::blocks() const {
  const MutexLock lock(state_->mutex);
  return state_->blocks.size();
}
bool FullySharded::shared() const {
  const MutexLock lock(state_->mutex);
  return std::any_of(state_->blocks.begin(), state_->blocks.end(),
                     [](const auto& running) { return running.weights->shared(); });
}
std::size_t FullySharded::weight_bytes() const {
  std::size_t bytes = 0;
  const MutexLock lock(state_->mutex);
  for (const auto& running : state_->blocks) bytes += running.weights->weight_bytes();
  return bytes;
}

FullySharded::Whole::Whole(FullySharded& of) : of_(of) {
  const MutexLock lock(of_.state_->mutex);
  for (auto& running : of_.state_->blocks) running.weights->gather();
}

FullySharded::Whole::~Whole() {
  const MutexLock lock(of_.state_->mutex);
  const at::NoGradGuard no_grad;
  for (auto& running : of_.state_->blocks) {
    running.weights->keep_own_part();
    running.weights->release();
  }
  if (!unwinding_.is_past() && of_.state_->group.size() > 1) (void)of_.state_->group.run({.kind = Kind::kBarrier});
}

}  // namespace tutti
