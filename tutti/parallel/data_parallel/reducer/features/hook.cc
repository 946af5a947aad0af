// DataParallelOptions::hook in place of the all_reduce. Everything is packed, so it gets one tensor.
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tutti/parallel/data_parallel/reducer/features/features.h"

namespace tutti {
namespace {

// Hooks compute in the types that they were given, though backward() or finish() may be called under autocast.
struct AsWritten {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

class HookedBuckets final : public ReducerFeature {
 public:
  bool on_bucket(State& core, Bucket& bucket, Give) override TUTTI_REQUIRES(core.mutex) {
    bucket.hooked = core.parameters[bucket.parameters.front()].route == Route::kBucket;
    if (!bucket.hooked) return false;
    const AsWritten no_autocast;
    bucket.contents.scale = core.gradient_scale;
    bucket.contents.last_was_skipped = core.finite.found().has_value();
    bucket.finish_hook = core.options.hook->start(core.group, bucket.contents);
    return true;
  }

  void on_reduced(State& core, Bucket& bucket) override TUTTI_REQUIRES(core.mutex) {
    if (!bucket.hooked) return;
    const auto finish = std::exchange(bucket.finish_hook, nullptr);
    const auto& buffer = bucket.contents.buffer;
    const at::Tensor result = [&] {
      const AsWritten no_autocast;
      return finish();
    }();
    if (!result.defined() || result.numel() != buffer.numel() || result.scalar_type() != buffer.scalar_type() ||
        result.layout() != at::kStrided || result.device() != buffer.device())
      core.end_group("the hook " + core.options.hook->name() + " returned " + describe(result) + " for bucket " +
                         std::to_string(bucket.contents.index) + ", which is " + describe(buffer) +
                         " (the gradients of " + bucket.contents.names.front() +
                         (bucket.contents.names.size() > 1 ? " to " + bucket.contents.names.back() : std::string()) +
                         ")",
                     "return a tensor of the size and type of bucket.buffer on its device, or that itself");
    if (result.data_ptr() != buffer.data_ptr()) buffer.copy_(result.view({buffer.numel()}));
    core.finite.check_averages_of_hook(core.parameters, bucket);
  }
};

}  // namespace

std::unique_ptr<ReducerFeature> hook_feature() { return std::make_unique<HookedBuckets>(); }

}  // namespace tutti
