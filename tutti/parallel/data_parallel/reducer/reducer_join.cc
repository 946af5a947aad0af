// A rank that has run out of data goes on with the others in shadow: it makes the calls that they make, with zeros.
//
// Before each step all ranks say whether they have data, and whether they broadcast buffers: one byte each. So every
// rank knows who leads (the highest with data, as in PyTorch, in rank 0's place) and by how many the sums
// are to be shared, and those who have gone know what to take part in.
#include <fmt/format.h>
#include <torch/nn/module.h>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/reducer/reducer_state.h"
#include "tutti/parallel/replicas.h"

namespace tutti {

void Reducer::begin_join(bool divide_by_active, bool throw_on_early_end) {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  state.require_no_excluded_pair(&DataParallelUse::join_uneven);
  if (state.joining) throw Exception(state.mistake("a second join_uneven() began", "let the first one go before"));
  state.joining.emplace(
      State::Joining{.divide_by_active = divide_by_active, .throw_on_early_end = throw_on_early_end, .now = {}});
}

void Reducer::end_join() {
  const MutexLock lock(state_->mutex);
  state_->joining.reset();
}

std::optional<int> Reducer::join_leader() const {
  const MutexLock lock(state_->mutex);
  return state_->joining ? std::optional(state_->joining->now.root) : std::nullopt;
}

Reducer::JoinTurn Reducer::turn(bool has_data) {
  const MutexLock lock(state_->mutex);
  return state_->turn(has_data);
}

Reducer::JoinTurn Reducer::State::turn(bool has_data) {
  constexpr std::uint8_t kHasData = 1, kBroadcasts = 2;
  std::vector<std::uint8_t> said(std::size_t(group.size()), 0);
  if (has_data) said[std::size_t(group.rank())] = kHasData | (options.broadcast_buffers ? kBroadcasts : 0);
  all_reduce(group, std::span(said), ReduceOp::kMax);
  JoinTurn turn{.root = -1};
  std::vector<std::string> gone;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto word = said[std::size_t(rank)];
    turn.buffers |= (word & kBroadcasts) != 0;
    if (word & kHasData) {
      ++turn.active;
      turn.root = rank;
    } else {
      turn.gone.push_back(rank);
      gone.push_back(std::to_string(rank));
    }
  }
  if (joining && joining->throw_on_early_end && turn.active > 0 && !gone.empty())
    throw Exception(
        mistake(fmt::format("{} {} ran out of data while others have some", gone.size() == 1 ? "rank" : "ranks",
                            join(gone, ", ")),
                "give every rank the same number of batches, or let JoinUnevenOptions::throw_on_early_end be false"));
  return turn;
}

void Reducer::shadow_step(const JoinTurn& turn) {
  auto& state = *state_;
  const at::NoGradGuard no_grad;
  MutexLock lock(state.mutex);
  state.joining->now = turn;
  if (turn.buffers && state.group.size() > 1)
    broadcast_values(state.group, state.not_ignored(buffers_of(*state.module)), turn.root);
  state.finish_step(State::Give::kZeros);
  auto* const taker = state.taker;
  const auto after_shadow_step = state.after_shadow_step;
  lock.unlock();
  if (taker) taker->shadow_step(turn.root);
  if (after_shadow_step) after_shadow_step();
}

void Reducer::broadcast_model(int root) {
  const MutexLock lock(state_->mutex);
  const at::NoGradGuard no_grad;
  broadcast_values(state_->group, state_->not_ignored(without_repeats(tensors_of(*state_->module))), root);
}

}  // namespace tutti
