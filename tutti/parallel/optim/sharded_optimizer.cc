// What a step is made of: gradients are taken from the Reducer (in stage 2 while backward() still runs), averaged,
// stepped, and the new weights given to all. Ranks of one host do that in each other's memory, between two meetings: at
// the first everybody's backward() is over, so that weights may be written; at the second all have been written.
#include "tutti/parallel/optim/sharded_optimizer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/ddp/gradient_taker.h"
#include "tutti/parallel/optim/averages.h"
#include "tutti/parallel/optim/over_ranks.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

}  // namespace

struct ShardedOptimizer::State final : GradientTaker {
  State(Reducer& with, UpdateRule what, int in_stage);

  bool takes_in_backward() const override { return stage == 2; }
  void take(std::span<const TakenGradient> bucket) override;
  void taken(std::span<const std::uint8_t> used) override;

  void finish();
  void average_taken(AveragesIn where);
  void step();
  void end_step();
  void step_one(Shard& shard, std::span<std::byte* const> gradients);
  void give_by_collectives();
  template <class Wait>
  void count_exposed(const Wait& wait);

  Reducer& reducer;
  const Group group;
  UpdateRule rule;
  const int stage;
  Shards shards;
  std::vector<Shard*> steps;  // with a gradient in this step, in the order in which they came
  AverageFacts facts;
  bool finished = false;  // the Reducer has handed over all
  bool averaged = false;
  double scale = 1, limit = kNoLimit;
};

ShardedOptimizer::State::State(Reducer& with, UpdateRule what, int in_stage)
    : reducer(with), group(with.group()), rule(std::move(what)), stage(in_stage) {
  check(rule).or_throw();
  TUTTI_REQUIRE(stage == 1 || stage == 2, "ShardedOptimizer: stage is ", stage,
                "; expected 1 or 2 (for 3 see FullySharded)");
  reducer.attach_optimizer(*this);
  const auto parameters = reducer.parameters();
  std::vector<bool> large;
  for (std::size_t i = 0; i < parameters.size(); ++i) large.push_back(reducer.is_large(i));
  try {
    shards = make_shards(group, name(rule), reducer.names(), parameters, large);
  } catch (...) {
    reducer.detach_optimizer();
    throw;
  }
}

void ShardedOptimizer::State::take(std::span<const TakenGradient> bucket) {
  const std::size_t first = steps.size();
  for (const auto& [parameter, gradient] : bucket) {
    Shard& shard = shards.all[parameter];
    shard.gradient = gradient;
    steps.push_back(&shard);
  }
  if (stage == 1) return;
  const std::span fresh = std::span(steps).subspan(first);
  const PeerGradients peers(group, fresh);
  for (std::size_t k = 0; k < fresh.size(); ++k) {
    const auto number = fresh[k] - shards.all.data();
    if (const auto gradients = peers.of(k); !gradients.empty())
      average_in_place(group, *fresh[k], gradients, AveragesIn::kOwn, number, facts);
    else
      average_by_collectives(group, *fresh[k], AveragesIn::kOwn, number, facts);
  }
  if (peers.any() && group.size() > 1) barrier(group);  // the peers have read this rank's gradients
  for (Shard* shard : fresh) shard->gradient = at::Tensor();
}

void ShardedOptimizer::State::taken(std::span<const std::uint8_t> used) {
  std::erase_if(steps, [&](Shard* shard) {
    if (used[std::size_t(shard - shards.all.data())]) return false;
    shard->end_step();
    return true;
  });
  finished = true;
  averaged = stage == 2;
}

template <class Wait>
void ShardedOptimizer::State::count_exposed(const Wait& wait) {
  const auto begin = now();
  wait();
  reducer.count_exposed(seconds_since(begin));
}

void ShardedOptimizer::State::finish() {
  if (!finished) reducer.finish();
}

void ShardedOptimizer::State::average_taken(AveragesIn where) {
  std::optional<PeerGradients> peers;
  count_exposed([&] { peers.emplace(group, steps); });
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const auto number = steps[k] - shards.all.data();
    if (const auto gradients = peers->of(k); !gradients.empty())
      average_in_place(group, *steps[k], gradients, where, number, facts);
    else
      count_exposed([&] { average_by_collectives(group, *steps[k], where, number, facts); });
  }
  averaged = true;
}

void ShardedOptimizer::State::step_one(Shard& shard, std::span<std::byte* const> gradients) {
  shard.state.prepare(rule, shard.mine.count + shard.tail.count, shard.weight.scalar_type());
  Update update = shard.state.next_update(rule);
  update.scale = scale;
  update.limit = limit;
  if (!shard.averaged && !gradients.empty() && !shard.weights.empty()) {
    average_and_step(group, shard, gradients, update);
  } else {
    if (!shard.averaged) {
      const auto number = &shard - shards.all.data();
      if (gradients.empty())
        count_exposed([&] { average_by_collectives(group, shard, AveragesIn::kGradient, number, facts); });
      else
        average_in_place(group, shard, gradients, AveragesIn::kGradient, number, facts);
    }
    step_averaged(group, shard, update);
  }
  shard.weight.unsafeGetTensorImpl()->bump_version();  // autograd must see that saved weights were overwritten
}

void ShardedOptimizer::State::step() {
  if (steps.empty()) return;
  std::optional<PeerGradients> peers;
  bool meet_at_end = false;
  count_exposed([&] {
    if (averaged)
      barrier(group);  // everybody's backward() is over
    else
      peers.emplace(group, steps);
  });
  // What backward() made last is still in the caches.
  for (std::size_t k = steps.size(); k-- > 0;) {
    step_one(*steps[k], peers ? peers->of(k) : std::span<std::byte* const>());
    meet_at_end = meet_at_end || !steps[k]->weights.empty() || (peers && !peers->of(k).empty());
  }
  count_exposed([&] {
    give_by_collectives();
    if (meet_at_end && group.size() > 1) barrier(group);
  });
}

// The weights that the peers cannot reach; of small parameters all that lie together.
void ShardedOptimizer::State::give_by_collectives() {
  const auto gather = [&](DType dtype, std::byte* all, std::int64_t part) {
    if (part == 0) return;
    group
        .run({.kind = Kind::kAllGather,
              .dtype = dtype,
              .in = all + std::size_t(part * group.rank()) * size_of(dtype),
              .out = all,
              .count = std::size_t(part)})
        .or_throw();
  };
  bool small = false;
  for (Shard* shard : steps) {
    if (!shard->weights.empty()) continue;
    if (shard->large)
      gather(shard->dtype, shard->weight_at(0), shard->mine.count);
    else
      small = true;
  }
  if (!small) return;
  for (const auto& pack : shards.packs)
    gather(pack.weights.scalar_type() == at::kFloat ? DType::kF32 : DType::kF64,
           static_cast<std::byte*>(pack.weights.data_ptr()), pack.part);
}

void ShardedOptimizer::State::end_step() {
  for (Shard* shard : steps) shard->end_step();
  steps.clear();
  facts = {};
  finished = averaged = false;
  scale = 1;
  limit = kNoLimit;
}

ShardedOptimizer::ShardedOptimizer(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options) {
  const at::NoGradGuard no_grad;
  state_ = std::make_unique<State>(reducer, std::move(rule), options.stage);
}

ShardedOptimizer::~ShardedOptimizer() { state_->reducer.detach_optimizer(); }

void ShardedOptimizer::step() {
  const at::NoGradGuard no_grad;
  state_->finish();
  if (!state_->reducer.skips_step()) state_->step();
  state_->end_step();
}

GradientNorm ShardedOptimizer::clip_grad_norm(double max_norm) {
  const at::NoGradGuard no_grad;
  require_clip_limit("clip_grad_norm", "max_norm", max_norm);
  auto& state = *state_;
  state.finish();
  if (!state.averaged) state.average_taken(AveragesIn::kGradient);
  const auto result = norm_over_ranks(state.group, state.facts, [&](std::int64_t shard) -> const std::string& {
    return state.shards.all[std::size_t(shard)].name;
  });
  state.scale = result.finite() ? clip_factor(result.norm, max_norm) : 1;
  return result;
}

void ShardedOptimizer::clip_grad_value(double limit) {
  require_clip_limit("clip_grad_value", "limit", limit);
  state_->limit = limit;
}

void ShardedOptimizer::zero_grad() {
  state_->end_step();
  state_->reducer.zero_grad();
}
double ShardedOptimizer::lr() const { return learning_rate(state_->rule); }
void ShardedOptimizer::set_lr(double lr) { set_learning_rate(state_->rule, lr); }

std::size_t ShardedOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& shard : state_->shards.all) bytes += shard.state.bytes();
  return bytes;
}

std::vector<StatePart> ShardedOptimizer::own_state() {
  std::vector<StatePart> parts;
  for (auto& shard : state_->shards.all) {
    shard.state.prepare(state_->rule, shard.mine.count + shard.tail.count, shard.weight.scalar_type());
    append_parts(parts, shard.state, state_->rule, shard.name, shard.weight, {shard.mine, shard.tail});
  }
  return parts;
}

std::vector<StatePart> ShardedOptimizer::full_state() {
  const at::NoGradGuard no_grad;
  const auto own = own_state();
  return gather_state(state_->group, own);
}

}  // namespace tutti
