// What all stages have in common; the rest is in what stands behind: data_parallel_shards.cc,
// zero/fully_sharded_optimizer.cc.
#include "tutti/parallel/optim/sharded_optimizer.h"

#include <ATen/core/grad_mode.h>

#include "tutti/base/error.h"
#include "tutti/parallel/optim/over_ranks.h"
#include "tutti/parallel/optim/sharded_state.h"

namespace tutti {

ShardedOptimizer::State::State(Group with, UpdateRule what) : group(std::move(with)), rule(std::move(what)) {
  check(rule).or_throw();
}

Update ShardedOptimizer::State::next_update(Shard& shard) {
  shard.state.prepare(rule, shard.mine.count + shard.tail.count, shard.weight.scalar_type());
  Update update = shard.state.next_update(rule);
  update.scale = scale;
  update.limit = limit;
  return update;
}

void ShardedOptimizer::State::end_step() {
  forget();
  facts = {};
  scale = 1;
  limit = std::numeric_limits<double>::infinity();
}

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ShardedOptimizer::ShardedOptimizer(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options) {
  const at::NoGradGuard no_grad;
  state_ = shards_of(reducer, std::move(rule), options.stage);
}
ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::step() {
  const at::NoGradGuard no_grad;
  state_->finish();
  if (!state_->skips_step()) state_->step();
  state_->end_step();
}

GradientNorm ShardedOptimizer::clip_grad_norm(double max_norm) {
  const at::NoGradGuard no_grad;
  require_clip_limit("clip_grad_norm", "max_norm", max_norm);
  auto& state = *state_;
  state.finish();
  state.average();
  const auto shards = state.shards();
  const auto result = norm_over_ranks(state.group, state.facts, [&](std::int64_t shard) -> const std::string& {
    return shards[std::size_t(shard)]->name;
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
  state_->zero_grad();
}
double ShardedOptimizer::lr() const { return learning_rate(state_->rule); }
void ShardedOptimizer::set_lr(double lr) { set_learning_rate(state_->rule, lr); }

std::size_t ShardedOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto* shard : state_->shards()) bytes += shard->state.bytes();
  return bytes;
}

std::vector<StatePart> ShardedOptimizer::own_state() {
  std::vector<StatePart> parts;
  for (auto* shard : state_->shards()) {
    shard->state.prepare(state_->rule, shard->mine.count + shard->tail.count, shard->weight.scalar_type());
    append_parts(parts, shard->state, state_->rule, shard->name, shard->weight, {shard->mine, shard->tail});
  }
  return parts;
}

std::vector<StatePart> ShardedOptimizer::full_state() {
  const at::NoGradGuard no_grad;
  const auto own = own_state();
  return gather_state(state_->group, own);
}

}  // namespace tutti
