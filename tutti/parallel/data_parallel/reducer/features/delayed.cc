// Parameters whose gradients accumulate over steps, until average_delayed().
#include <ATen/core/grad_mode.h>

#include "tutti/parallel/data_parallel/reducer/features/features.h"

namespace tutti {
namespace {

class DelayedGradients final : public ReducerFeature {
 public:
  explicit DelayedGradients(State& core) TUTTI_REQUIRES(core.mutex)
      : numbers_(core.numbers_of(Route::kDelayed)), buckets_(core.buckets_of(numbers_)) {
    for (const auto index : numbers_) core.arrivals->skip(index);
  }

  bool takes_part(State& core, std::size_t parameter) override TUTTI_REQUIRES(core.mutex) {
    if (core.parameters[parameter].route != Route::kDelayed) return true;
    averaged_ = false;
    return false;
  }
  bool keeps_gradient(const State& core, std::size_t parameter) const override TUTTI_REQUIRES(core.mutex) {
    return core.parameters[parameter].route == Route::kDelayed && !averaged_;
  }
  void close(State& core) override TUTTI_REQUIRES(core.mutex) { core.end_works(buckets_); }

  void average(State& core) TUTTI_REQUIRES(core.mutex) {
    for (auto& bucket : buckets_) core.launch(bucket, Give::kGradients);
    core.wait_for(buckets_);
    const bool is_bad = core.finite.is_on() && core.finite.decide(core.parameters, Give::kGradients);
    core.write_back(numbers_, core.used_anywhere(true, Give::kGradients));
    for (const auto index : numbers_) {
      core.parameters[index].packed = core.parameters[index].touched = false;
      core.parameters[index].reduced = at::Tensor();
    }
    averaged_ = true;
    if (is_bad && core.finite.throws()) core.throw_non_finite();
  }

 private:
  std::vector<std::size_t> numbers_;
  std::vector<Bucket> buckets_;
  bool averaged_ = false;  // and nothing came since
};

}  // namespace

std::unique_ptr<ReducerFeature> delayed_feature(Reducer::State& core) {
  return std::make_unique<DelayedGradients>(core);
}

void Reducer::average_delayed() {
  auto& state = *state_;
  const MutexLock lock(state.mutex);
  const at::NoGradGuard no_grad;
  state.group.status().or_throw();
  if (auto* const delayed = feature_of<DelayedGradients>(state)) delayed->average(state);
}

}  // namespace tutti
