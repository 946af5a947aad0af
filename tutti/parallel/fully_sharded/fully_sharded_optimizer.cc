// Stage 3 of ShardedOptimizer: the averages of this rank's part are in the blocks already, and so is that part of the
// weights. Shared weights are stepped in place.
#include <ATen/core/grad_mode.h>

#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/fully_sharded/fully_sharded_state.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/parallel/optim/sharded_state.h"

namespace tutti {
namespace {

std::vector<std::string> names_in(const ShardedModule::State& model) {
  const MutexLock lock(model.mutex);
  std::vector<std::string> names;
  for (const auto& running : model.blocks)
    for (const auto& shard : running.weights->shards()) names.push_back(shard.name);
  return names;
}

class OfFullySharded final : public ShardedOptimizer::State {
 public:
  OfFullySharded(std::shared_ptr<ShardedModule::State> model, UpdateRule rule, std::vector<ParameterGroup> groups)
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
    const MutexLock lock(model_->mutex);
    findings = model_->findings;
    if (model_->options.finite_check == FiniteCheck::kOff) model_->find_in_averages(findings);
  }
  bool skips_step() const override {
    const MutexLock lock(model_->mutex);
    return model_->found && model_->options.finite_check == FiniteCheck::kReport;
  }
  void step() override {
    {
      const MutexLock lock(model_->mutex);
      refused = model_->refusal();
      if (refused) return;
      for (auto& running : model_->blocks) {
        if (!running.weights->has_averages()) continue;
        auto& shards = running.weights->shards();
        for (std::size_t k = 0; k < shards.size(); ++k)
          if (model_->used[running.first_shard + k]) step_one(*running.weights, k);
      }
    }
    model_->publish();
  }
  void forget() override { model_->forget(); }
  void zero_grad() override {}
  bool is_finished() const override {
    const MutexLock lock(model_->mutex);
    return model_->finished;
  }

 private:
  void step_one(fully_sharded::ShardedBlock& block, std::size_t number) {
    Shard& shard = block.shards()[number];
    const Update update = next_update(shard);  // makes the state
    update_tensor(update, block.local(number), shard.mine_average, shard.state.tensors);
    block.trained(number).unsafeGetTensorImpl()->bump_version();
  }

  std::shared_ptr<ShardedModule::State> model_;
};

}  // namespace

ShardedOptimizer::ShardedOptimizer(ShardedModule& model, UpdateRule rule, std::vector<ParameterGroup> groups)
    : ShardedOptimizer(std::make_unique<OfFullySharded>(model.state_, std::move(rule), std::move(groups))) {}

}  // namespace tutti
