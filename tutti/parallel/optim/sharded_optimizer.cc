// What all stages share. The rest is in data_parallel_shards.cc and fully_sharded/fully_sharded_optimizer.cc.
//
// A rank that has run out of data (join_uneven()) still steps its part of the weights, but does not run the program's
// loop. The leader of the ranks with data broadcasts each call on the optimizer, with its learning rates, before the
// ranks make it.
#include "tutti/parallel/optim/sharded_optimizer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/stream_calls.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/parallel/optim/matrix_rule.h"
#include "tutti/parallel/optim/sharded_state.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

// As require_clip_limit(), and the error has this rank.
void require_limit(const Group& group, const char* function, const char* name, double value) {
  try {
    require_clip_limit(function, name, value);
  } catch (const Exception& refused) {
    Error error = refused.error();
    error.group = group.name();
    error.rank = group.rank();
    throw Exception(std::move(error));
  }
}

// Every parameter's state as a whole, out of the parts of all ranks. All give parts of the same tensors in the same
// order, empty ones included. A part that starts at the same element on every rank is a replica.
std::vector<StatePart> gather_state(const Group& group, std::span<const StatePart> own) {
  const auto ranks = std::size_t(group.size());
  std::vector<std::int64_t> mine, all(own.size() * 2 * ranks);  // begin and count of each part, by rank
  for (const auto& part : own) {
    mine.push_back(part.begin);
    mine.push_back(part.values.numel());
  }
  all_gather(group, std::span<const std::int64_t>(mine), std::span(all));

  std::vector<StatePart> whole;
  for (std::size_t k = 0; k < own.size(); ++k) {
    const auto& part = own[k];
    std::vector<std::int64_t> begins;
    std::vector<std::size_t> counts;
    for (std::size_t r = 0; r < ranks; ++r) {
      begins.push_back(all[(r * own.size() + k) * 2]);
      counts.push_back(std::size_t(all[(r * own.size() + k) * 2 + 1]));
    }
    StatePart* to = whole.empty() ? nullptr : &whole.back();
    if (!to || to->parameter != part.parameter || to->state != part.state) {
      std::int64_t elements = 1;
      for (const auto extent : part.shape) elements *= extent;
      to = &whole.emplace_back(part);
      to->begin = 0;
      to->values = at::empty({elements}, part.values.options());
    }
    const bool replica = std::equal(begins.begin() + 1, begins.end(), begins.begin()) &&
                         std::equal(counts.begin() + 1, counts.end(), counts.begin());
    if (replica) {
      to->values.narrow(0, part.begin, part.values.numel()).copy_(part.values);
      continue;
    }
    std::size_t total = 0;
    for (const auto count : counts) total += count;
    const auto gathered = at::empty({std::int64_t(total)}, part.values.options());
    all_gather_v(group, part.values, gathered, counts);
    std::int64_t from = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      to->values.narrow(0, begins[r], std::int64_t(counts[r])).copy_(gathered.narrow(0, from, std::int64_t(counts[r])));
      from += std::int64_t(counts[r]);
    }
  }
  return whole;
}

}  // namespace

ShardedOptimizer::State::State(Group with, GroupedRules what, std::vector<NamedValue> options)
    : group(std::move(with)), rules(std::move(what)) {
  for (std::size_t g = 0; g < rules.size(); ++g)
    if (needs_matrix(rules[g]))
      throw Exception(Error{.code = Code::kInvalidArgument,
                            .detail = std::string("ShardedOptimizer: ") + name(rules[g]) +
                                      " steps whole matrices, but each rank has a part of the elements of a parameter",
                            .hint = "use a tutti::Optimizer after ddp.finish(), or another rule",
                            .group = group.name(),
                            .rank = group.rank()});
  for (auto& value : rules.named_values()) options.push_back(std::move(value));
  if (group.size() > 1) require_same_options(group, "ShardedOptimizer", options);
}

Update ShardedOptimizer::State::next_update(Shard& shard) {
  shard.state.prepare(rules[shard.group], shard.mine.count + shard.tail.count, shard.weight);
  Update update = shard.state.next_update(rules[shard.group]);
  update.scale = factor * scale;
  update.limit = limit;
  return update;
}

GradientNorm ShardedOptimizer::State::clip_grad_norm(double max_norm) {
  finish();
  announce(Call::kClip, max_norm);
  return clip(max_norm);
}

// What all ranks have alike, the tails, the first of them counts.
std::int64_t ShardedOptimizer::State::zero_averages() {
  std::int64_t zeros = 0;
  std::vector<at::Tensor> others;
  const auto count = [&](const at::Tensor& averages) {
    if (averages.numel() == 0) return;
    zeros += averages.numel();
    others.push_back(averages.count_nonzero());
  };
  for (const Shard* shard : shards()) {
    if (!shard->averaged || !shard->counts) continue;
    count(shard->mine_average);
    if (group.rank() == 0) count(shard->tail_average);
  }
  for (const double number : values_of(others)) zeros -= std::int64_t(number);
  zeros = all_reduce(group, zeros);
  return model ? all_reduce(model, zeros) : zeros;
}

void ShardedOptimizer::State::make_step() {
  finish();
  await_stream_calls().or_throw();
  announce(Call::kStep);
  step_and_end();
  if (refused) throw Exception(*refused);
}

void ShardedOptimizer::State::skip_step() {
  if (is_finished()) announce(Call::kSkip);
  end_step();
}

GradientNorm ShardedOptimizer::State::clip(double max_norm) {
  average();
  const auto all = shards();
  auto result = norm_over_ranks(group, model, findings,
                                [&](std::size_t shard) -> const std::string& { return all[shard]->name; });
  result.norm *= factor;
  scale = result.finite() ? clip_factor(result.norm, max_norm) : 1;
  return result;
}

void ShardedOptimizer::State::refuse_non_finite(const std::string& where, const std::string& more_hint) {
  const auto all = shards();
  const std::string sentence = non_finite_over_ranks(
      group, model, findings, [&](std::size_t shard) -> const std::string& { return all[shard]->name; });
  if (sentence.empty()) return;
  refused = Error{
      .code = Code::kNonFinite,
      .detail = "ShardedOptimizer: " + sentence + where,
      .hint = "lower the learning rate, clip, or scale the loss (LossScaler); look at that rank's batch" + more_hint,
      .group = group.name(),
      .rank = group.rank()};
}

void ShardedOptimizer::State::step_and_end() {
  refused.reset();
  if (!skips_step()) step();
  end_step();
}

void ShardedOptimizer::State::end_step() {
  forget();
  findings = {};
  factor = scale = 1;
  limit = std::numeric_limits<double>::infinity();
}

void ShardedOptimizer::State::announce(Call call, double max_norm) {
  const auto from = leader();
  if (!from) return;
  std::vector<double> values = {double(call), max_norm, limit};
  for (std::size_t g = 0; g < rules.size(); ++g) {
    values.push_back(learning_rate(rules[g]));
    values.push_back(weight_decay(rules[g]));
  }
  broadcast(group, std::span(values), *from);
}

void ShardedOptimizer::State::follow(int leader) {
  for (;;) {
    std::vector<double> values(3 + 2 * rules.size());
    broadcast(group, std::span(values), leader);
    limit = values[2];
    for (std::size_t g = 0; g < rules.size(); ++g) {
      rules.set_lr(values[3 + 2 * g], g);
      rules.set_weight_decay(values[4 + 2 * g], g);
    }
    switch (Call(int(values[0]))) {
      case Call::kClip:
        clip(values[1]);
        break;
      case Call::kStep:
        return step_and_end();
      case Call::kSkip:
        return end_step();
    }
  }
}

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ShardedOptimizer::ShardedOptimizer(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options) {
  const at::NoGradGuard no_grad;
  state_ = shards_of(reducer, std::move(rule), std::move(options));
}
ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::step() {
  const at::NoGradGuard no_grad;
  state_->make_step();
}

GradientNorm ShardedOptimizer::clip_grad_norm(double max_norm) {
  const at::NoGradGuard no_grad;
  require_limit(state_->group, "clip_grad_norm", "max_norm", max_norm);
  return state_->clip_grad_norm(max_norm);
}

void ShardedOptimizer::clip_grad_value(double limit) {
  require_limit(state_->group, "clip_grad_value", "limit", limit);
  state_->limit = limit;
}

void ShardedOptimizer::zero_grad() {
  state_->skip_step();
  state_->zero_grad();
}
double ShardedOptimizer::lr(std::size_t group) const { return learning_rate(state_->rules[group]); }
void ShardedOptimizer::set_lr(double lr) { state_->rules.set_lr(lr); }
void ShardedOptimizer::set_lr(double lr, std::size_t group) { state_->rules.set_lr(lr, group); }
void ShardedOptimizer::set_weight_decay(double decay, std::size_t group) {
  state_->rules.set_weight_decay(decay, group);
}

std::int64_t ShardedOptimizer::zero_averages() {
  const at::NoGradGuard no_grad;
  return state_->zero_averages();
}

std::size_t ShardedOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto* shard : state_->shards()) bytes += shard->state.bytes();
  return bytes;
}

std::vector<StatePart> ShardedOptimizer::own_state() {
  std::vector<StatePart> parts;
  for (auto* shard : state_->shards()) {
    const auto& rule = state_->rules[shard->group];
    shard->state.prepare(rule, shard->mine.count + shard->tail.count, shard->weight);
    append_parts(parts, shard->state, rule, shard->name, shard->weight, {shard->mine, shard->tail});
  }
  return parts;
}

std::vector<StatePart> ShardedOptimizer::full_state() {
  const at::NoGradGuard no_grad;
  const auto own = own_state();
  return gather_state(state_->group, own);
}

}  // namespace tutti
