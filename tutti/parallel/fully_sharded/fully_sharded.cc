// Making a FullySharded, the end of a step, and weights outside of forward() and backward(). When weights are needed in
// these two: passes.cc.
#include "tutti/parallel/fully_sharded/fully_sharded.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <span>

#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/stream_calls.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/parallel/fully_sharded/block_parameters.h"
#include "tutti/parallel/fully_sharded/fully_sharded_state.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/gradient_hook.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

using fully_sharded::kRoot;
using fully_sharded::ShardedBlock;

Group beside(const Group& group, const std::string& name) {
  return group.size() == 1 ? group : group.split(0, group.rank(), name).or_throw();
}

// A group of one rank replicates nothing.
Group replicas_of(const FullyShardedOptions& options) {
  return options.replicate && options.replicate.size() > 1 ? options.replicate : Group();
}

ShardedBlock::Types types_of(const MixedPrecisionPolicy& policy) {
  ShardedBlock::Types types;
  if (policy.param_dtype) {
    check_computes_in(*policy.param_dtype).or_throw();
    types.compute = fully_sharded::floating_type(*policy.param_dtype, "param_dtype");
  }
  if (policy.reduce_dtype) types.reduce = fully_sharded::floating_type(*policy.reduce_dtype, "reduce_dtype");
  if (policy.output_dtype) fully_sharded::floating_type(*policy.output_dtype, "output_dtype");
  return types;
}

std::string text(const std::optional<DType>& type) { return type ? name(*type) : "none"; }

}  // namespace

at::ScalarType fully_sharded::floating_type(DType type, const char* option) {
  if (type == DType::kF32) return at::kFloat;
  if (type == DType::kBF16) return at::kBFloat16;
  TUTTI_REQUIRE(type == DType::kF16, "FullySharded: ", option, " is ", name(type), "; expected f32, bf16 or f16");
  return at::kHalf;
}

// ---- Making

ShardedModule::State::State(std::shared_ptr<torch::nn::Module> model, const Group& with, FullyShardedOptions given)
    : module(std::move(model)),
      group(with),
      replicate(replicas_of(given)),
      options(std::move(given)),
      groups{beside(with, "gathers"), beside(with, "reductions"), replicate ? beside(replicate, "replicas") : Group()} {
  TUTTI_REQUIRE(module, "FullySharded: the model is null");
  TUTTI_REQUIRE(options.prefetch >= 0, "FullySharded: prefetch is ", options.prefetch,
                "; expected how many blocks to gather ahead, 0 or more");
  TUTTI_REQUIRE(options.finite_check != FiniteCheck::kInReduction,
                "FullySharded: gradients are checked as they are packed, so finite_check is kThrow, kReport or kOff");
}

void ShardedModule::State::add_blocks() {
  const at::NoGradGuard no_grad;
  prepare_compute(group);
  const auto types = types_of(options.mixed_precision);
  const bool is_sequential = dynamic_cast<const torch::nn::SequentialImpl*>(module.get()) != nullptr;
  auto patterns = options.blocks;
  if (patterns.empty() && is_sequential && !module->children().empty()) patterns = {"*"};
  auto parts = fully_sharded::block_parameters(*module, patterns);
  std::vector<NamedTensor> all;
  for (const auto& part : parts) all.insert(all.end(), part.parameters.begin(), part.parameters.end());
  const bool trains = std::any_of(all.begin(), all.end(), [](const auto& p) { return p.tensor.requires_grad(); });
  TUTTI_REQUIRE(trains, "FullySharded: the model has no parameter that requires a gradient");
  const auto& policy = options.mixed_precision;
  const std::vector<NamedValue> values = {{"blocks", fmt::format("{}", fmt::join(patterns, ", "))},
                                          {"prefetch", std::to_string(options.prefetch)},
                                          {"share_on_host", fmt::format("{}", options.share_on_host)},
                                          {"heap_tensors", fmt::format("{}", options.heap_tensors)},
                                          {"reshard_after_forward", fmt::format("{}", options.reshard_after_forward)},
                                          {"param_dtype", text(policy.param_dtype)},
                                          {"reduce_dtype", text(policy.reduce_dtype)},
                                          {"finite_check", std::to_string(int(options.finite_check))},
                                          {"unshard_at_end", fmt::format("{}", options.unshard_at_end)},
                                          {"replicas", std::to_string(replicate ? replicate.size() : 1)}};
  const auto buffers = without_repeats(buffers_of(*module));
  // Along the replicas first: then the first group of shards has rank 0's values on all its ranks.
  for (const Group& along : {replicate, group}) {
    if (!along) continue;
    require_same_options(along, "FullySharded", values);
    require_same_structure(along, all);
    require_same_structure(along, buffers);
    broadcast_values(along, buffers);
  }
  if (options.heap_tensors) heap.emplace(group);
  const bool shared = options.share_on_host && group.nodes() == 1;
  const MutexLock lock(mutex);
  for (std::size_t b = 0; b < parts.size(); ++b) {
    Running& running = blocks.emplace_back();
    running.module = parts[b].module;
    if (b != kRoot) by_module.emplace(running.module, b);
    running.first_shard = shard_count;
    running.weights =
        std::make_unique<ShardedBlock>(parts[b].name, std::move(parts[b].parameters), groups, types, int(b), shared);
    shard_count += running.weights->shards().size();
    if (b != kRoot) expected.push_back(b);
  }
  used.assign(shard_count, 0);
  for (std::size_t b = 0; b < blocks.size(); ++b) install_hooks(b);
}

void ShardedModule::State::check_batch(const at::Tensor& x) const {
  if (options.allow_empty_batches || !at::GradMode::is_enabled()) return;
  if (!x.defined() || x.dim() == 0 || x.size(0) > 0) return;
  fail({.code = Code::kInvalidArgument,
        .detail = "FullySharded: forward() was given a batch of no samples, " + describe(x) +
                  ": the mean of its loss is NaN, and so would be all gradients on every rank",
        .hint = "give every rank samples, or set allow_empty_batches if the loss is a sum"});
}

void ShardedModule::State::fail(Error error) const {
  error.group = group.name();
  error.rank = group.rank();
  for (const Group& each : {group, replicate, groups.gathers, groups.reductions, groups.replicas})
    if (each) each.abort(error);  // wherever peers wait
  throw Exception(std::move(error));
}

void ShardedModule::State::install_hooks(std::size_t block) {
  auto& running = blocks[block];
  running.accumulators.clear();
  for (std::size_t k = 0; k < running.weights->shards().size(); ++k) {
    running.accumulators.push_back(after_gradient(running.weights->trained(k), [weak = weak_from_this(), block, k] {
      if (const auto state = weak.lock()) state->on_gradient(block, k);
    }));
  }
}

// ---- The end of a step

void ShardedModule::State::finish() {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  if (finished) return;
  group.status().or_throw();
  if (std::none_of(used.begin(), used.end(), [](auto any) { return any != 0; }))
    fail({.code = Code::kInvalidArgument,
          .detail = "FullySharded: the model has no gradient of this step",
          .hint = "call backward() on what forward() returned before step() or finish()"});
  require_same_runs();
  end_pass();
  for (const std::size_t block : in_flight) blocks[block].weights->pass_on_reduce();
  in_flight.clear();
  for (auto& running : blocks) {
    running.weights->end_reduce();
    running.ran = false;
    if (scale != 1 && running.weights->has_averages()) running.weights->scale_averages(1 / scale);
  }
  await_stream_calls().or_throw();
  agree_on_gradients();
  finished = true;
  ++steps;
}

void ShardedModule::State::require_same_runs() {
  const auto digest = std::int64_t(runs >> 1);
  for (const Group& along : {group, replicate}) {
    if (!along || along.size() == 1) continue;
    std::int64_t both[] = {digest, -digest};
    all_reduce(along, std::span<std::int64_t>(both), ReduceOp::kMax);
    if (both[0] == -both[1]) continue;
    std::vector<std::string> names;
    for (const std::size_t block : order) names.push_back(blocks[block].weights->name());
    fail({.code = Code::kMismatch,
          .detail = fmt::format("FullySharded: the ranks did not run the same blocks in the same order in this step; "
                                "this rank ran {}",
                                names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
          .hint = "every rank runs the same blocks; which of them it uses in its loss may differ"});
  }
}

const std::string& ShardedModule::State::name_of_shard(std::size_t number) const {
  std::size_t b = blocks.size() - 1;
  while (blocks[b].first_shard > number || blocks[b].weights->shards().empty()) --b;
  return blocks[b].weights->shards()[number - blocks[b].first_shard].name;
}

// Those of shards that no rank has used are zeros.
void ShardedModule::State::find_in_averages(GradientFindings& to) const {
  const int rank = options.finite_check == FiniteCheck::kOff ? NonFinite::kUnknownRank : NonFinite::kOnTheWay;
  for (const auto& running : blocks) {
    if (!running.weights->has_averages()) continue;
    for (std::size_t k = 0; k < running.weights->shards().size(); ++k)
      to.add(running.weights->average_of(k), {running.first_shard + k, rank}, &GradientFindings::squares);
  }
}

// Which parameters any rank has used, and the first whose gradient is not finite: of a rank, or only in the average.
void ShardedModule::State::agree_on_gradients() {
  if (options.finite_check != FiniteCheck::kOff) find_in_averages(findings);
  findings.settle();
  std::vector<std::int64_t> message(used.begin(), used.end());
  message.push_back(-findings.first());
  all_reduce(group, std::span(message), ReduceOp::kMax);
  if (replicate) all_reduce(replicate, std::span(message), ReduceOp::kMax);
  for (std::size_t k = 0; k < shard_count; ++k) used[k] = message[k] != 0;
  found.reset();
  const auto first = NonFinite::of(-message.back());
  if (!first) return;
  findings.note(*first);
  found = {.parameter = name_of_shard(first->parameter), .rank = first->rank};
}

std::optional<Error> ShardedModule::State::refusal() const {
  if (!found) return {};
  return Error{.code = Code::kNonFinite,
               .detail = fmt::format("FullySharded: {}, in step {}; the weights are as they were",
                                     non_finite_gradient(found->parameter, found->rank), steps),
               .hint = "lower the learning rate, clip, or scale the loss (LossScaler); check the batch of that rank",
               .group = group.name(),
               .rank = group.rank()};
}

void ShardedModule::State::hand_over() {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  for (auto& running : blocks) {
    if (!running.weights->has_averages()) continue;
    for (std::size_t k = 0; k < running.weights->shards().size(); ++k) {
      if (!used[running.first_shard + k]) continue;
      at::Tensor local = running.weights->local(k);
      at::Tensor& gradient = local.mutable_grad();
      if (gradient.defined())
        gradient.add_(running.weights->average_of(k));
      else
        gradient = running.weights->average_of(k);
    }
  }
  written = true;  // by the optimizer, before the next forward()
}

void ShardedModule::State::forget() {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  for (auto& running : blocks) {
    running.weights->forget_gradients();
    running.ran = false;
  }
  in_flight.clear();
  order.clear();
  gathered_back.reset();
  records_pass = runs_again = false;
  ++pass;
  std::fill(used.begin(), used.end(), 0);
  findings = {};
  runs = 0;
  finished = false;
}

// ---- Weights outside of forward() and backward()

bool ShardedModule::State::any_shared() const {
  return std::any_of(blocks.begin(), blocks.end(), [](const auto& running) { return running.weights->shared(); });
}

void ShardedModule::State::publish() {
  const MutexLock lock(mutex);
  written = true;
  publish_written();
}

void ShardedModule::State::publish_written() {
  if (!written) return;
  const at::NoGradGuard no_grad;
  for (auto& running : blocks) running.weights->publish();
  if (any_shared()) barrier(group);
  written = false;
}

void ShardedModule::State::begin_whole() {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  if (ended) return;
  publish_written();
  for (auto& running : blocks) running.weights->begin_whole();
}

void ShardedModule::State::end_whole(bool unwinds) {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  if (ended) return;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    blocks[b].weights->end_whole();
    if (options.mixed_precision.param_dtype) install_hooks(b);  // LibTorch drops them where the type changes
  }
  if (!unwinds && group.size() > 1) (void)group.run({.kind = Kind::kBarrier});
}

void ShardedModule::State::unshard() {
  const at::NoGradGuard no_grad;
  const MutexLock lock(mutex);
  if (ended) return;
  publish_written();
  for (auto& running : blocks) {
    running.accumulators.clear();
    running.weights->forget_gradients();
    running.weights->unshard();
  }
  if (any_shared()) barrier(group);
  ended = true;
}

std::vector<NamedTensor> ShardedModule::State::locals() const {
  const MutexLock lock(mutex);
  std::vector<NamedTensor> all;
  for (const auto& running : blocks)
    for (std::size_t k = 0; k < running.weights->shards().size(); ++k)
      all.push_back({running.weights->shards()[k].name, running.weights->local(k)});
  return all;
}

// ---- ShardedModule

ShardedModule::ShardedModule(std::shared_ptr<torch::nn::Module> module, const Group& group, FullyShardedOptions options)
    : state_(std::make_shared<State>(std::move(module), group, std::move(options))) {
  state_->add_blocks();
}

// Only where the peers do the same: an exception on one rank, or a group that has failed, leaves empty parameters.
ShardedModule::~ShardedModule() {
  const bool together = !state_->unwinding.is_past() && state_->group.status().ok();
  try {
    if (together && state_->options.unshard_at_end)
      state_->unshard();
    else if (together && shared())
      barrier(state_->group);  // the peers may still be reading weights in this rank's memory
  } catch (const Exception& error) {
    log::warn(std::string("FullySharded: the weights were lost at its end: ") + error.what());
  }
  const MutexLock lock(state_->mutex);
  state_->blocks.clear();
  state_->ended = true;
}

std::vector<NamedTensor> ShardedModule::named_parameters() { return state_->locals(); }

std::vector<at::Tensor> ShardedModule::parameters() {
  std::vector<at::Tensor> tensors;
  for (auto& named : named_parameters()) tensors.push_back(std::move(named.tensor));
  return tensors;
}

void ShardedModule::finish() {
  state_->finish();
  bool has_optimizer = false;
  std::optional<Error> refused;
  {
    const MutexLock lock(state_->mutex);
    has_optimizer = state_->has_optimizer;
    refused = state_->refusal();
  }
  if (has_optimizer) return;
  if (!refused) state_->hand_over();
  state_->forget();
  if (refused && state_->options.finite_check == FiniteCheck::kThrow) throw Exception(*std::move(refused));
}

GradientNorm ShardedModule::clip_grad_norm(double max_norm) {
  require_clip_limit("clip_grad_norm", "max_norm", max_norm);
  const at::NoGradGuard no_grad;
  const auto locals = named_parameters();
  GradientFindings findings = gradient_findings(locals);
  const auto norm = norm_over_ranks(state_->group, {}, findings,
                                    [&](std::size_t shard) -> const std::string& { return locals[shard].name; });
  const double factor = clip_factor(norm.norm, max_norm);
  if (!norm.finite() || factor >= 1) return norm;
  for (const auto& local : locals)
    if (at::Tensor& gradient = local.tensor.mutable_grad(); gradient.defined()) gradient.mul_(factor);
  return norm;
}

void ShardedModule::zero_grad() {
  for (const auto& local : named_parameters()) local.tensor.mutable_grad() = at::Tensor();
  state_->forget();
}

std::optional<NonFiniteGradient> ShardedModule::non_finite() const {
  const MutexLock lock(state_->mutex);
  return state_->found;
}

void ShardedModule::set_gradient_scale(double scale) {
  const MutexLock lock(state_->mutex);
  state_->scale = scale;
}

FiniteCheck ShardedModule::finite_check() const { return state_->options.finite_check; }
const Group& ShardedModule::group() const { return state_->group; }

std::vector<StatePart> ShardedModule::own_state() {
  std::vector<StatePart> parts;
  const MutexLock lock(state_->mutex);
  TUTTI_REQUIRE(!state_->ended, "FullySharded: own_state() after unshard(); the module has the weights");
  for (const auto& running : state_->blocks)
    for (auto& part : running.weights->own_weights()) parts.push_back(std::move(part));
  for (const auto& [name, buffer] : without_repeats(buffers_of(*state_->module))) {
    TUTTI_REQUIRE(buffer.is_contiguous(), "FullySharded: buffer ", name, ", ", describe(buffer),
                  ", is not contiguous; use tensor.contiguous()");
    parts.push_back({.parameter = name,
                     .state = "",
                     .shape = buffer.sizes().vec(),
                     .values = buffer.view({-1}),
                     .may_differ = true});
  }
  state_->written = true;  // perhaps, by whoever has the parts
  return parts;
}

void ShardedModule::unshard() { state_->unshard(); }

bool ShardedModule::shared() const {
  const MutexLock lock(state_->mutex);
  return state_->any_shared();
}

std::size_t ShardedModule::weight_bytes() const {
  std::size_t bytes = 0;
  const MutexLock lock(state_->mutex);
  for (const auto& running : state_->blocks) bytes += running.weights->weight_bytes();
  return bytes;
}

ShardedModule::Whole::Whole(ShardedModule& of) : of_(of) { of_.state_->begin_whole(); }
ShardedModule::Whole::~Whole() { of_.state_->end_whole(unwinding_.is_past()); }

}  // namespace tutti
