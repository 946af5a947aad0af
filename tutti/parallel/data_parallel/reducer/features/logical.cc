// Several logical ranks in one process. A turn ends when the next one begins: its gradients are moved out of `.grad`
// and added to those of the turns before, as the tree says. Only the last turn's gradients are waited for, and only
// with them are buckets reduced: up the tree, level by level, each between two processes.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include "tutti/comm/group_region.h"
#include "tutti/parallel/data_parallel/reducer/features/features.h"
#include "tutti/parallel/data_parallel/reducer/features/logical_ranks.h"
#include "tutti/parallel/replicas.h"

namespace tutti {
namespace {

class LogicalTurns final : public ReducerFeature {
 public:
  explicit LogicalTurns(State& core) TUTTI_REQUIRES(core.mutex)
      : ranks_(core.group, core.options.logical_ranks, core.parameters.size()) {}

  // begin_logical_rank() broadcasts buffers.
  bool before_forward(State& core) override TUTTI_REQUIRES(core.mutex) {
    return require_turn(core, "forward()", false), false;
  }
  bool takes_part(State&, std::size_t) override { return ranks_.is_last_turn(); }
  void before_finish(State& core) override TUTTI_REQUIRES(core.mutex) { require_turn(core, "finish()", true); }
  double factor(const State&) const override { return ranks_.factor(); }
  void on_zero_grad(State&) override { ranks_.end_step(); }

  void on_ready(State& core, std::size_t index, Give) override TUTTI_REQUIRES(core.mutex) {
    if (ranks_.each() == 1) return;
    auto& parameter = core.parameters[index];
    auto& gradient = parameter.tensor.mutable_grad();
    core.require_layout(parameter, gradient);
    gradient = ranks_.sum(index, gradient.defined() ? gradient : at::zeros_like(parameter.tensor));
  }

  // The first level overlaps with backward().
  bool on_bucket(State& core, Bucket& bucket, Give) override TUTTI_REQUIRES(core.mutex) {
    if (!core.writes_back) return false;  // a sharded optimizer averages
    if (!core.overlap) return true;
    for (const auto& range : core.ranges_of(bucket)) bucket.works.push_back(ranks_.levels()[0].submit(sum(range, 0)));
    return true;
  }
  void on_reduced(State& core, Bucket& bucket) override TUTTI_REQUIRES(core.mutex) {
    if (!core.writes_back) return;
    for (const auto& range : core.ranges_of(bucket))
      for (std::size_t level = core.overlap ? 1 : 0; level < ranks_.levels().size(); ++level) {
        const Request request = sum(range, level);
        const GroupRegion region(ranks_.levels()[level], "average with peers", [&] { return to_string(request); });
        ranks_.levels()[level].run(request).or_throw();
      }
  }

  void end_step(State& core, const std::vector<std::uint8_t>&, Give) override TUTTI_REQUIRES(core.mutex) {
    ranks_.end_step_of(shared_buffers(core));
    ranks_.end_step();
  }

  void begin_turn(State& core, int number) TUTTI_REQUIRES(core.mutex) {
    if (ranks_.has_begun() && !ranks_.is_last_turn()) {
      for (std::size_t i = 0; i < core.parameters.size(); ++i) {
        auto& gradient = core.parameters[i].tensor.mutable_grad();
        core.require_layout(core.parameters[i], gradient);
        ranks_.keep(i, gradient.defined() ? gradient : at::zeros_like(core.parameters[i].tensor));
        gradient = at::Tensor();
      }
    }
    ranks_.begin_turn(number);
    const auto buffers = shared_buffers(core);
    if (ranks_.turn() == 0 && core.group.size() > 1) broadcast_values(core.group, buffers);
    ranks_.begin_turn_of(buffers);
  }

  std::vector<int> numbers() const {
    std::vector<int> mine;
    for (int i = 0; i < ranks_.each(); ++i) mine.push_back(ranks_.first() + i);
    return mine;
  }

 private:
  // The last level averages.
  Request sum(const GradientRange& range, std::size_t level) const {
    Request request = all_reduce_of(range.bytes);
    if (level + 1 < ranks_.levels().size()) request.op = ReduceOp::kSum;
    return request;
  }

  static std::vector<NamedTensor> shared_buffers(const State& core) {
    if (!core.module->is_training()) return {};
    return core.not_ignored(buffers_of(*core.module));
  }

  void require_turn(const State& core, const char* call, bool last) const {
    if (ranks_.has_begun() && (!last || ranks_.is_last_turn())) return;
    const int first = ranks_.first(), all = ranks_.each();
    throw Exception(core.mistake(
        ranks_.has_begun() ? fmt::format("{} after the turn of logical rank {}, but this process carries {} to {}",
                                         call, first + ranks_.turn(), first, first + all - 1)
                           : fmt::format("{} before begin_logical_rank()", call),
        "for each of logical_ranks(): begin_logical_rank(), forward(), backward(); then finish()"));
  }

  LogicalRanks ranks_;
};

}  // namespace

std::unique_ptr<ReducerFeature> logical_feature(Reducer::State& core) { return std::make_unique<LogicalTurns>(core); }

std::vector<int> Reducer::logical_ranks() const {
  const MutexLock lock(state_->mutex);
  const auto* const logical = feature_of<LogicalTurns>(*state_);
  return logical ? logical->numbers() : std::vector<int>();
}

void Reducer::begin_logical_rank(int number) {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  auto* const logical = feature_of<LogicalTurns>(state);
  if (!logical)
    throw Exception(state.mistake(fmt::format("begin_logical_rank({}) without logical ranks", number),
                                  "set DataParallelOptions::logical_ranks"));
  const at::NoGradGuard no_grad;
  logical->begin_turn(state, number);
}

}  // namespace tutti
