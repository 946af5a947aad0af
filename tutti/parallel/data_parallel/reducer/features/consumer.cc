// An optimizer that averages the gradients itself takes the buckets.
#include <fmt/format.h>

#include "tutti/parallel/data_parallel/gradient_consumer.h"
#include "tutti/parallel/data_parallel/reducer/features/features.h"

namespace tutti {
namespace {

class ConsumedBuckets final : public ReducerFeature {
 public:
  void add_use(const State&, DataParallelUse& use) const override { use.sharded_optimizer = consumer_ != nullptr; }

  void on_ready(State& core, std::size_t parameter, Give give) override TUTTI_REQUIRES(core.mutex) {
    if (consumer_ && core.parameters[parameter].window.defined()) core.fill_window(parameter, give);
  }

  bool on_bucket(State& core, Bucket& bucket, Give) override TUTTI_REQUIRES(core.mutex) {
    if (!consumer_) return false;
    std::vector<ConsumedGradient> gradients;
    for (const auto index : bucket.parameters) {
      auto& parameter = core.parameters[index];
      if (parameter.window.defined()) {
        gradients.push_back({index, parameter.window});
      } else {
        gradients.push_back({index, std::exchange(parameter.reduced, {})});
        if (consumer_->consumes_in_backward()) parameter.tensor.mutable_grad() = at::Tensor();
      }
    }
    consumer_->consume(gradients, bucket.contents.buffer);
    return true;
  }

  void end_step(State& core, const std::vector<std::uint8_t>& used, Give) override TUTTI_REQUIRES(core.mutex) {
    if (consumer_) consumer_->finish_step(used, core.average_factor());
  }

  void attach(State& core, GradientConsumer* consumer) TUTTI_REQUIRES(core.mutex) {
    consumer_ = consumer;
    core.writes_back = consumer == nullptr;
    core.launches_in_backward = consumer ? consumer->consumes_in_backward() : core.overlap;
  }
  GradientConsumer* consumer() const { return consumer_; }

 private:
  GradientConsumer* consumer_ = nullptr;
};

}  // namespace

std::unique_ptr<ReducerFeature> consumer_feature() { return std::make_unique<ConsumedBuckets>(); }

GradientConsumer* consumer_of(const Reducer::State& core) { return feature_of<ConsumedBuckets>(core)->consumer(); }

void Reducer::attach_optimizer(GradientConsumer& consumer) {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  TUTTI_REQUIRE(!consumer_of(state), "this DataParallel has a sharded optimizer already");
  state.require_no_excluded_pair(&DataParallelUse::sharded_optimizer);
  if (state.options.logical_ranks != 0 && state.group.size() > 2)
    throw Exception(state.mistake(
        fmt::format("a sharded optimizer averages gradients itself, so the {} logical ranks on {} processes would be "
                    "added in another order",
                    state.options.logical_ranks, state.group.size()),
        "use an optimizer that is not sharded, or leave this out"));
  feature_of<ConsumedBuckets>(state)->attach(state, &consumer);
}

void Reducer::detach_optimizer() {
  const MutexLock lock(state_->mutex);
  feature_of<ConsumedBuckets>(*state_)->attach(*state_, nullptr);
}

}  // namespace tutti
