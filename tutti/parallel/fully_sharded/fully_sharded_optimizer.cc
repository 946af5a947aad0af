// Stage 3 of ShardedOptimizer: the averages of this rank's part are in the blocks already, and so is that part of the
// weights. What is shared is stepped where all see it.
#include <ATen/core/grad_mode.h>

#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/fully_sharded/fully_sharded_state.h"
#include "tutti/parallel/optim/sharded_state.h"

namespace tutti {
namespace {

std::vector<std::string> names_in(const FullySharded::State& model) {
  const MutexLock lock(model.mutex);
  std::vector<std::string> names;
  for (const auto& running : model.blocks)
    for (const auto& shard : running.weights->shards()) names.push_back(shard.name);
  return names;
}

class OfFullySharded final : public ShardedOptimizer::State {
 public:
  OfFullySharded(std::shared_ptr<FullySharded::State> model, UpdateRule rule, std::vector<ParameterGroup> groups)
      : State(model->group, GroupedRules(std::move(rule), std::move(groups), names_in(*model))),
        model_(std::move(model)) {
    std::size_t number = 0;
    const auto shards = OfFullySharded::shards();
    const MutexLock lock(model_->mutex);
    TUTTI_REQUIRE(!model_->has_optimizer, "this FullySharded has an optimizer already");
    for (Shard* shard : shards) shard->group = rules.group_of(number++);
    model_->has_optimizer = true;
  }
  ~OfFullySharded() override {
    const MutexLock lock(model_->mutex);
    model_->has_optimizer = false;
  }

  std::vector<Shard*> shards() override {
    std::vector<Shard*> all;
    const MutexLock lock(model_->mutex);
    for (auto& running : model_->blocks)
      for (auto& shard : running.weights->shards()) all.push_back(&shard);
    return all;
  }
  void finish() override {
    model_->finish();
    const MutexLock lock(model_->mutex);
    for (auto& running : model_->blocks)
      if (running.weights->has_averages()) running.weights->place_averages();
  }
  void average() override {
    findings = {};
    {
      const MutexLock lock(model_->mutex);
      findings.non_finite = model_->non_finite;
    }
    for_steps([&](ShardedBlock&, Shard& shard, std::size_t number) {
      const auto squares = squares_of(shard.dtype, shard.mine_average, std::size_t(shard.mine.count));
      if (!squares.finite()) findings.non_finite.note(group, {number, NonFiniteWatch::Found::kUnknownRank});
      findings.squares += squares;
    });
    averaged_ = true;
  }
  void step() override {
    if (!averaged_) average();
    refuse_non_finite("; the weights are as they were", "");
    if (refused) return;
    bool shared = false;
    for_steps([&](ShardedBlock& block, Shard& shard, std::size_t) {
      update_elements(next_update(shard), shard.dtype, block.own_weight(shard), shard.mine_average, shard.state, 0,
                      shard.mine.count);
      shard.weight.unsafeGetTensorImpl()->bump_version();
      shared = shared || block.shared();
    });
    if (shared) barrier(group);
  }
  void forget() override {
    model_->forget();
    averaged_ = false;
  }
  void zero_grad() override {}
  bool is_finished() const override {
    const MutexLock lock(model_->mutex);
    return model_->finished;
  }

 private:
  template <class Act>
  void for_steps(const Act& act) {
    const MutexLock lock(model_->mutex);
    for (auto& running : model_->blocks) {
      if (!running.weights->has_averages()) continue;
      auto& shards = running.weights->shards();
      for (std::size_t k = 0; k < shards.size(); ++k)
        if (model_->used[running.first_shard + k]) act(*running.weights, shards[k], running.first_shard + k);
    }
  }

  std::shared_ptr<FullySharded::State> model_;
  bool averaged_ = false;
};

}  // namespace

ShardedOptimizer::ShardedOptimizer(FullySharded& model, UpdateRule rule, std::vector<ParameterGroup> groups)
    : ShardedOptimizer(std::make_unique<OfFullySharded>(model.state_, std::move(rule), std::move(groups))) {}

}  // namespace tutti
