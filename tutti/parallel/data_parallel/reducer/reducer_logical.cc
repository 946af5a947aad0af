// Several logical ranks in one process. A turn ends when the next one begins: its gradients are taken out of `.grad`
// and added to those of the turns before, as the tree says. Only the last turn's gradients are waited for, and only
// with them do buckets travel: up the tree, level by level, each between two processes.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include "tutti/comm/group_region.h"
#include "tutti/parallel/data_parallel/reducer/reducer_state.h"
#include "tutti/parallel/replicas.h"

namespace tutti {

std::vector<int> Reducer::logical_ranks() const {
  std::vector<int> mine;
  const MutexLock lock(state_->mutex);
  if (!state_->logical) return mine;
  for (int i = 0; i < state_->logical->each(); ++i) mine.push_back(state_->logical->first() + i);
  return mine;
}

void Reducer::begin_logical_rank(int number) {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  if (!state.logical)
    throw Exception(state.mistake(fmt::format("begin_logical_rank({}) without logical ranks", number),
                                  "set DataParallelOptions::logical_ranks"));
  const at::NoGradGuard no_grad;
  auto& logical = *state.logical;
  if (logical.has_begun() && !logical.is_last_turn()) {
    for (std::size_t i = 0; i < state.parameters.size(); ++i) {
      auto& gradient = state.parameters[i].tensor.mutable_grad();
      state.require_layout(state.parameters[i], gradient);
      logical.keep(i, gradient.defined() ? gradient : at::zeros_like(state.parameters[i].tensor));
      gradient = at::Tensor();
    }
  }
  logical.begin_turn(number);
  const auto buffers = state.shared_buffers();
  if (logical.turn() == 0 && state.group.size() > 1) broadcast_values(state.group, buffers);
  logical.begin_turn_of(buffers);
}

std::vector<NamedTensor> Reducer::State::shared_buffers() const {
  if (!module->is_training()) return {};
  return not_ignored(buffers_of(*module));
}

void Reducer::State::add_logical_ranks(std::size_t index) {
  if (!logical || logical->each() == 1) return;
  auto& parameter = parameters[index];
  auto& gradient = parameter.tensor.mutable_grad();
  require_layout(parameter, gradient);
  gradient = logical->sum(index, gradient.defined() ? gradient : at::zeros_like(parameter.tensor));
}

void Reducer::State::climb_from(Bucket& bucket, const TensorBytes& bytes) {
  if (!overlap) return climb(bytes, 0);
  const auto& levels = logical->levels();
  bucket.works.push_back(levels[0].submit({.kind = Kind::kAllReduce,
                                           .dtype = bytes.dtype,
                                           .op = levels.size() == 1 ? ReduceOp::kAvg : ReduceOp::kSum,
                                           .in = bytes.data,
                                           .out = bytes.data,
                                           .count = bytes.count}));
  bucket.climbing.push_back(bytes);
}

void Reducer::State::climb(const TensorBytes& bytes, std::size_t level) {
  const auto& levels = logical->levels();
  for (; level < levels.size(); ++level) {
    const Request request{.kind = Kind::kAllReduce,
                          .dtype = bytes.dtype,
                          .op = level + 1 == levels.size() ? ReduceOp::kAvg : ReduceOp::kSum,
                          .in = bytes.data,
                          .out = bytes.data,
                          .count = bytes.count};
    const GroupRegion region(levels[level], "average with peers", [&] { return to_string(request); });
    levels[level].run(request).or_throw();
  }
}

void Reducer::State::require_logical_turn(const char* call, bool last) const {
  if (logical->has_begun() && (!last || logical->is_last_turn())) return;
  const int first = logical->first(), all = logical->each();
  throw Exception(mistake(logical->has_begun()
                              ? fmt::format("{} after the turn of logical rank {}, but this process carries {} to {}",
                                            call, first + logical->turn(), first, first + all - 1)
                              : fmt::format("{} before begin_logical_rank()", call),
                          "for each of logical_ranks(): begin_logical_rank(), forward(), backward(); then finish()"));
}

}  // namespace tutti
