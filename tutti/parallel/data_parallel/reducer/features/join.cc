// A rank that has run out of data keeps participating: it makes the calls of the other ranks, with zeros.
//
// Before each step all ranks exchange one byte each: whether they have data, and whether they broadcast buffers. So
// every rank knows the leader (the highest with data, as in PyTorch, in rank 0's place) and the number that sums are
// divided by, and a rank without data knows what to take part in.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/gradient_consumer.h"
#include "tutti/parallel/data_parallel/reducer/features/features.h"
#include "tutti/parallel/replicas.h"

namespace tutti {
namespace {

class UnevenJoin final : public ReducerFeature {
 public:
  void add_use(const State&, DataParallelUse& use) const override {
    use.join_uneven = joining_;
    use.loss_scaler = after_join_step != nullptr;
  }
  bool before_forward(State& core) override TUTTI_REQUIRES(core.mutex) {
    if (joining_) take(core, exchange(core, true));
    return true;
  }
  double factor(const State& core) const override TUTTI_REQUIRES(core.mutex) {
    const bool shares_unevenly = joining_ && divide_by_active_ && now_.active < core.group.size();
    return shares_unevenly ? double(core.group.size()) / now_.active : 1;
  }

  void begin(State& core, bool divide_by_active, bool throw_on_early_end) TUTTI_REQUIRES(core.mutex) {
    core.require_no_excluded_pair(&DataParallelUse::join_uneven);
    if (joining_) throw Exception(core.mistake("a second join_uneven() began", "let the first one go before"));
    joining_ = true;
    divide_by_active_ = divide_by_active;
    throw_on_early_end_ = throw_on_early_end;
    now_ = {};
  }
  void end(State& core) TUTTI_REQUIRES(core.mutex) {
    joining_ = false;
    core.leader = 0;
  }
  std::optional<int> leader() const { return joining_ ? std::optional(now_.root) : std::nullopt; }
  void take(State& core, const Reducer::JoinTurn& turn) TUTTI_REQUIRES(core.mutex) {
    now_ = turn;
    core.leader = turn.root;
  }

  Reducer::JoinTurn exchange(State& core, bool has_data) const TUTTI_REQUIRES(core.mutex) {
    constexpr std::uint8_t kHasData = 1, kBroadcasts = 2;
    std::vector<std::uint8_t> ranks(std::size_t(core.group.size()), 0);
    if (has_data) ranks[std::size_t(core.group.rank())] = kHasData | (core.options.broadcast_buffers ? kBroadcasts : 0);
    all_reduce(core.group, std::span(ranks), ReduceOp::kMax);
    Reducer::JoinTurn turn{.root = -1};
    std::vector<std::string> gone;
    for (int rank = 0; rank < core.group.size(); ++rank) {
      const auto flags = ranks[std::size_t(rank)];
      turn.buffers |= (flags & kBroadcasts) != 0;
      if (flags & kHasData) {
        ++turn.active;
        turn.root = rank;
      } else {
        turn.gone.push_back(rank);
        gone.push_back(std::to_string(rank));
      }
    }
    if (joining_ && throw_on_early_end_ && turn.active > 0 && !gone.empty())
      throw Exception(core.mistake(
          fmt::format("{} {} ran out of data while others have some", gone.size() == 1 ? "rank" : "ranks",
                      join(gone, ", ")),
          "give every rank the same number of batches, or let JoinUnevenOptions::throw_on_early_end be false"));
    return turn;
  }

  std::function<void()> after_join_step;  // called without the lock

 private:
  bool joining_ = false, divide_by_active_ = false, throw_on_early_end_ = false;
  Reducer::JoinTurn now_;
};

}  // namespace

std::unique_ptr<ReducerFeature> join_feature() { return std::make_unique<UnevenJoin>(); }

void Reducer::begin_join(bool divide_by_active, bool throw_on_early_end) {
  const MutexLock lock(state_->mutex);
  feature_of<UnevenJoin>(*state_)->begin(*state_, divide_by_active, throw_on_early_end);
}

void Reducer::end_join() {
  const MutexLock lock(state_->mutex);
  feature_of<UnevenJoin>(*state_)->end(*state_);
}

std::optional<int> Reducer::join_leader() const {
  const MutexLock lock(state_->mutex);
  return feature_of<UnevenJoin>(*state_)->leader();
}

Reducer::JoinTurn Reducer::turn(bool has_data) {
  const MutexLock lock(state_->mutex);
  return feature_of<UnevenJoin>(*state_)->exchange(*state_, has_data);
}

void Reducer::set_after_join_step(std::function<void()> act) {
  const MutexLock lock(state_->mutex);
  feature_of<UnevenJoin>(*state_)->after_join_step = std::move(act);
}

void Reducer::join_step(const JoinTurn& turn) {
  auto& state = *state_;
  const at::NoGradGuard no_grad;
  MutexLock lock(state.mutex);
  auto& uneven = *feature_of<UnevenJoin>(state);
  uneven.take(state, turn);
  if (turn.buffers && state.group.size() > 1)
    broadcast_values(state.group, state.not_ignored(buffers_of(*state.module)), turn.root);
  state.finish_step(Give::kZeros);
  auto* const consumer = consumer_of(state);
  const auto after_join_step = uneven.after_join_step;
  lock.unlock();
  if (consumer) consumer->join_step(turn.root);
  if (after_join_step) after_join_step();
}

void Reducer::broadcast_model(int root) {
  const MutexLock lock(state_->mutex);
  const at::NoGradGuard no_grad;
  broadcast_values(state_->group, state_->not_ignored(without_repeats(tensors_of(*state_->module))), root);
}

}  // namespace tutti
