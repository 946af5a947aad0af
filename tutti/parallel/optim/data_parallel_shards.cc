// A step: gradients come from the Reducer (in stage 2 while backward() still runs), are averaged and stepped, and the
// new weights go to all ranks. Ranks of one host do that in each other's memory, between two barriers: after the first
// every backward() is over, so weights may be written; after the second all weights are written.
//
// Stage 2 averages bucket by bucket. In shared memory the calling thread averages, between two barriers. Over links and
// on GPUs the averages are in flight while backward() resumes. So on GPUs stage 1 averages as stage 2 does, unless the
// Reducer is not to overlap.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group_region.h"
#include "tutti/parallel/data_parallel/gradient_consumer.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/parallel/optim/shard_averages.h"
#include "tutti/parallel/optim/sharded_state.h"

namespace tutti {
namespace {

constexpr const char* kWaitingShards = "wait for peers";  // in traces
constexpr std::size_t kBucketsOnTheirWay = 2;             // while backward() goes on: each holds its gradients

// Where plans say in which order sums are added, and not the numbers of the ranks.
bool is_over_links(const Group& group) {
  return group.plan_name(
             {.kind = Kind::kReduceScatter, .dtype = DType::kF32, .op = ReduceOp::kAvg, .count = 1 << 20}) != "direct";
}

int stage_of(int asked, const Reducer& reducer) {
  const auto parameters = reducer.parameters();
  const bool on_gpus =
      std::any_of(parameters.begin(), parameters.end(), [](const auto& tensor) { return !tensor.device().is_cpu(); });
  return asked == 1 && on_gpus && reducer.options().overlap != Overlap::kOff ? 2 : asked;
}

// For traces: "fc1.weight f32[1179648]".
auto text_of_shard(const Shard& shard) {
  return [&shard] { return fmt::format("{} {}[{}]", shard.name, name(shard.dtype), shard.weight.numel()); };
}

class OfDataParallel final : public ShardedOptimizer::State, GradientConsumer {
 public:
  OfDataParallel(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options);
  ~OfDataParallel() override { reducer_.detach_optimizer(); }

  std::vector<Shard*> shards() override {
    std::vector<Shard*> all;
    for (auto& shard : shards_.all) all.push_back(&shard);
    return all;
  }
  void finish() override;
  void average() override;
  void step() override;
  void forget() override;
  void zero_grad() override { reducer_.zero_grad(); }
  bool skips_step() const override { return reducer_.skips_step(); }
  bool is_finished() const override { return finished_; }
  std::optional<int> leader() const override { return reducer_.join_leader(); }

 private:
  bool consumes_in_backward() const override { return stage_ == 2; }
  void consume(std::span<const ConsumedGradient> bucket, const at::Tensor& packed) override;
  void finish_step(std::span<const std::uint8_t> used, double factor) override;
  void join_step(int leader) override { follow(leader); }

  std::size_t number_of(const Shard& shard) const { return std::size_t(&shard - shards_.all.data()); }
  void step_one(Shard& shard, std::span<std::byte* const> gradients);
  // A barrier.
  void refuse_non_finite(const char* weights) {
    State::refuse_non_finite(fmt::format(", in step {} of this DataParallel; {}", reducer_.stats().steps, weights),
                             "; FiniteCheck::kThrow looks before any weight is stepped");
  }
  PeerGradients gradients_of_peers(std::span<Shard* const> shards) const;
  void average_with_peers(Shard& shard, std::span<std::byte* const> gradients, AveragesIn where);
  AverageByCollectives begin_average(Shard& shard, AveragesIn where);
  void average_packed();
  void give_by_collectives();
  void end_oldest_bucket();
  void average_exposed(Shard& shard);
  template <class Wait>
  void count_exposed(const Wait& wait);

  Reducer& reducer_;
  const int stage_;
  const bool as_data_parallel_;  // averages by the calls that DataParallel would make
  const bool checks_;            // FiniteCheck::kInReduction
  Shards shards_;
  std::vector<Shard*> steps_;  // with a gradient in this step, in the order of arrival
  struct BucketOnItsWay {
    TensorWork packed{};
    std::vector<std::pair<Shard*, AverageByCollectives>> shards{};
  };
  std::deque<BucketOnItsWay> on_their_way_;  // stage 2, what peers cannot read: the oldest first
  std::vector<at::Tensor> packed_;           // stage 1, as_data_parallel_: ranges to be averaged in this step
  bool finished_ = false;                    // the Reducer has handed over all
  bool averaged_ = false;
};

OfDataParallel::OfDataParallel(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options)
    : State(reducer.group(), GroupedRules(std::move(rule), std::move(options.groups), reducer.names()),
            {{"stage", std::to_string(options.stage)}, {"same_bits", options.same_bits ? "true" : "false"}}),
      reducer_(reducer),
      stage_(stage_of(options.stage, reducer)),
      as_data_parallel_(options.same_bits && group.size() > 2 && is_over_links(group)),
      checks_(reducer.checks_in_reduction()) {
  TUTTI_REQUIRE(stage_ == 1 || stage_ == 2, "ShardedOptimizer: stage is ", options.stage,
                "; expected 1 or 2 (for 3 see FullySharded)");
  reducer_.attach_optimizer(*this);
  const auto parameters = reducer_.parameters();
  std::vector<bool> large;
  for (std::size_t i = 0; i < parameters.size(); ++i) large.push_back(reducer_.is_large(i));
  try {
    shards_ = make_shards(group, name(rules[0]), reducer_.names(), parameters, large);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& elsewhere = options.counted_elsewhere;
      shards_.all[i].group = rules.group_of(i);
      shards_.all[i].counts = std::find(elsewhere.begin(), elsewhere.end(), shards_.all[i].name) == elsewhere.end();
    }
    model = options.model;
  } catch (...) {
    reducer_.detach_optimizer();
    throw;
  }
}

void OfDataParallel::consume(std::span<const ConsumedGradient> bucket, const at::Tensor& packed) {
  const std::size_t first = steps_.size();
  for (const auto& [parameter, gradient] : bucket) {
    Shard& shard = shards_.all[parameter];
    shard.gradient = gradient;
    steps_.push_back(&shard);
    if (as_data_parallel_ && !shard.large) findings.check(shard.gradient, {number_of(shard), group.rank()});
  }
  if (stage_ == 1) {
    if (as_data_parallel_ && packed.defined()) packed_.push_back(packed);
    return;
  }
  const std::span fresh = std::span(steps_).subspan(first);
  const PeerGradients peers = [&] {
    const Region region(kWaitingShards);  // and not on the lane: buckets before this one may be on their way
    return PeerGradients(group, fresh);
  }();
  auto& on_its_way = on_their_way_.emplace_back();
  if (as_data_parallel_ && packed.defined()) on_its_way.packed = all_reduce_async(group, packed, ReduceOp::kAvg);
  for (std::size_t k = 0; k < fresh.size(); ++k) {
    if (const auto gradients = peers.of(k); !gradients.empty()) {
      average_with_peers(*fresh[k], gradients, AveragesIn::kOwn);
    } else {
      on_its_way.shards.emplace_back(fresh[k], begin_average(*fresh[k], AveragesIn::kOwn));
    }
  }
  if (peers.any() && group.size() > 1) {
    const GroupRegion region(group, kWaitingShards);
    barrier(group);  // the peers have read this rank's gradients
  }
  for (std::size_t k = 0; k < fresh.size(); ++k)
    if (!peers.of(k).empty()) fresh[k]->gradient = at::Tensor();
  while (on_their_way_.size() > kBucketsOnTheirWay) end_oldest_bucket();
}

PeerGradients OfDataParallel::gradients_of_peers(std::span<Shard* const> shards) const {
  const GroupRegion region(group, kWaitingShards);
  return {group, shards};
}

void OfDataParallel::average_with_peers(Shard& shard, std::span<std::byte* const> gradients, AveragesIn where) {
  const GroupRegion region(group, "average with peers", text_of_shard(shard));
  keep_averages(shard, gradients, where, number_of(shard), findings);
}

AverageByCollectives OfDataParallel::begin_average(Shard& shard, AveragesIn where) {
  const bool is_packed = as_data_parallel_ && !shard.large;
  if (!is_packed) findings.check(shard.gradient, {number_of(shard), group.rank()});
  return {group, shard, where,
          is_packed           ? AverageOf::kNothing
          : as_data_parallel_ ? AverageOf::kWholeAsDataParallel
                              : AverageOf::kPart,
          number_of(shard)};
}

void OfDataParallel::average_packed() {
  for (const auto& packed : packed_) count_exposed([&] { all_reduce(group, packed, ReduceOp::kAvg); });
  packed_.clear();
}

void OfDataParallel::end_oldest_bucket() {
  on_their_way_.front().packed.get_on_stream();
  for (auto& [shard, average] : on_their_way_.front().shards) {
    average.end(findings);
    shard->gradient = at::Tensor();
  }
  on_their_way_.pop_front();
}

void OfDataParallel::finish_step(std::span<const std::uint8_t> used, double what_makes_averages) {
  while (!on_their_way_.empty()) end_oldest_bucket();
  std::erase_if(steps_, [&](Shard* shard) {
    if (used[number_of(*shard)]) return false;
    shard->end_step();
    return true;
  });
  factor = what_makes_averages;
  finished_ = true;
  averaged_ = stage_ == 2;
}

template <class Wait>
void OfDataParallel::count_exposed(const Wait& wait) {
  const auto begin = now();
  wait();
  reducer_.count_exposed(seconds_since(begin));
}

void OfDataParallel::average_exposed(Shard& shard) {
  count_exposed([&] { begin_average(shard, AveragesIn::kGradient).end(findings); });
}

void OfDataParallel::finish() {
  if (!finished_) reducer_.finish();
}

void OfDataParallel::average() {
  if (averaged_) return;
  std::optional<PeerGradients> peers;
  count_exposed([&] { peers.emplace(gradients_of_peers(steps_)); });
  average_packed();
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    if (const auto gradients = peers->of(k); !gradients.empty())
      average_with_peers(*steps_[k], gradients, AveragesIn::kGradient);
    else
      average_exposed(*steps_[k]);
  }
  averaged_ = true;
}

void OfDataParallel::step_one(Shard& shard, std::span<std::byte* const> gradients) {
  const Update update = next_update(shard);
  const StepCheck check{.number = number_of(shard), .findings = checks_ && !averaged_ ? &findings : nullptr};
  if (!shard.averaged && !gradients.empty() && !shard.weights.empty()) {
    const GroupRegion region(group, "average and step with peers", text_of_shard(shard));
    average_and_step(group, shard, gradients, update, check);
  } else {
    if (!shard.averaged) {
      if (gradients.empty())
        average_exposed(shard);
      else
        average_with_peers(shard, gradients, AveragesIn::kGradient);
    }
    const GroupRegion region(group, "step and give to peers", text_of_shard(shard));
    step_averaged(group, shard, update, check);
  }
  shard.weight.unsafeGetTensorImpl()->bump_version();  // autograd must see that saved weights were overwritten
}

void OfDataParallel::step() {
  if (steps_.empty()) return;
  // A step on a GPU checks nothing, so all averages are checked before the first.
  if (std::any_of(steps_.begin(), steps_.end(), [](const Shard* shard) { return !shard->weight.device().is_cpu(); }))
    average();
  std::optional<PeerGradients> peers;
  bool barrier_at_end = false;
  count_exposed([&] {
    if (!averaged_) {
      peers.emplace(gradients_of_peers(steps_));
      return;
    }
    const GroupRegion region(group, kWaitingShards);
    if (checks_)
      refuse_non_finite("the weights are as they were");
    else
      barrier(group);  // every backward() is over
  });
  if (refused) return;
  average_packed();
  // What backward() made last is still in the caches.
  for (std::size_t k = steps_.size(); k-- > 0;) {
    step_one(*steps_[k], peers ? peers->of(k) : std::span<std::byte* const>());
    barrier_at_end = barrier_at_end || !steps_[k]->weights.empty() || (peers && !peers->of(k).empty());
  }
  count_exposed([&] {
    give_by_collectives();
    const bool checked_shards = checks_ && !averaged_;
    if (!checked_shards && !(barrier_at_end && group.size() > 1)) return;
    const GroupRegion region(group, kWaitingShards);
    if (checked_shards)
      refuse_non_finite("what was finite has been stepped, on all ranks alike, and nothing else");
    else
      barrier(group);
  });
}

// The weights that peers cannot read; of small parameters the whole pack.
void OfDataParallel::give_by_collectives() {
  const auto gather = [&](const at::Tensor& weights, std::int64_t part) {
    if (part == 0) return;
    const GroupRegion region(group, "gather weights");
    const at::Tensor all = in_order_of_memory(weights).narrow(0, 0, part * group.size());
    all_gather(group, all.narrow(0, part * group.rank(), part), all);
  };
  bool small = false;
  for (Shard* shard : steps_) {
    if (!shard->weights.empty()) continue;
    if (shard->large)
      gather(shard->weight, shard->mine.count);
    else
      small = true;
  }
  if (!small) return;
  for (const auto& pack : shards_.packs) gather(pack.weights, pack.part);
}

void OfDataParallel::forget() {
  on_their_way_.clear();  // waits for what still writes to averages
  for (Shard* shard : steps_) shard->end_step();
  steps_.clear();
  packed_.clear();
  finished_ = averaged_ = false;
}

}  // namespace

std::unique_ptr<ShardedOptimizer::State> shards_of(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options) {
  return std::make_unique<OfDataParallel>(reducer, std::move(rule), std::move(options));
}

}  // namespace tutti
