#include "tutti/parallel/data_parallel/hooks/local_sgd.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "tutti/tensor/collectives.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

class LocalSgd final : public CommHook {
 public:
  explicit LocalSgd(LocalSgdOptions options) : options_(std::move(options)) {}

  std::string name() const override { return fmt::format("local_sgd(from step {})", options_.start_step); }

  Finish start(const Group& group, const GradientBucket& bucket) override {
    const bool local = step_ >= options_.start_step;
    if (bucket.is_last) ++step_;
    const Group& over = local ? options_.subgroup : group;
    if (!over) return [buffer = bucket.buffer] { return buffer; };
    auto work = all_reduce_async(over, bucket.buffer, ReduceOp::kAvg);
    return [work = std::move(work), buffer = bucket.buffer] {
      work.get();
      return buffer;
    };
  }

 private:
  LocalSgdOptions options_;
  std::int64_t step_ = 0;
};

}  // namespace

std::shared_ptr<CommHook> local_sgd(LocalSgdOptions options) {
  TUTTI_REQUIRE(options.start_step >= 0, "local_sgd: start_step is ", options.start_step, "; expected 0 or more");
  return std::make_shared<LocalSgd>(std::move(options));
}

PeriodicAverager::PeriodicAverager(std::vector<at::Tensor> parameters, Group group, PeriodicAveragerOptions options)
    : parameters_(without_repeats(std::move(parameters))), group_(std::move(group)), options_(options) {
  TUTTI_REQUIRE(options.period >= 1, "PeriodicAverager: the period is ", options.period, " steps; expected 1 or more");
  TUTTI_REQUIRE(options.warmup_steps >= 0, "PeriodicAverager: warmup_steps is ", options.warmup_steps,
                "; expected 0 or more");
}

bool PeriodicAverager::average() {
  const auto step = steps_++;
  if (step < options_.warmup_steps || (step - options_.warmup_steps) % options_.period != 0) return false;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const auto& parameter : parameters_) values.push_back(parameter.detach());
  all_reduce_coalesced(group_, values, ReduceOp::kAvg);
  return true;
}

}  // namespace tutti
