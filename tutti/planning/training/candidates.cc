#include "tutti/planning/training/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tutti/base/text.h"

namespace tutti::planning {

std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int one = 1; std::int64_t(one) * one <= number; ++one)
    if (number % one == 0) {
      found.push_back(one);
      if (one != number / one) found.push_back(number / one);
    }
  std::sort(found.begin(), found.end());
  return found;
}

PlanFilter::PlanFilter(const PlanRules& rules) : allow_(rules.allow) {
  for (const std::string& part : rules.fix) {
    set_in_plan(fixed_, part).or_throw();
    keys_.push_back(part.substr(0, part.find('=')));
  }
}

bool PlanFilter::is_fixed(const char* key) const { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); }

bool PlanFilter::is_allowed(const char* key) const {
  return allow_.empty() || std::find(allow_.begin(), allow_.end(), key) != allow_.end();
}

bool PlanFilter::chooses_ends() const {
  return !is_fixed("first") && !is_fixed("last") && is_allowed("first") && is_allowed("last");
}

namespace {

constexpr int kMostChunks = 8;

class Enumeration {
 public:
  Enumeration(const TransformerConfig& config, const TrainingRuntime& runtime, int global_batch, int devices,
              const PlanRules& rules, const std::function<void(const ParallelPlan&)>& take, Refusals& refusals)
      : config_(config),
        runtime_(runtime),
        batch_(global_batch),
        devices_(devices),
        filter_(rules),
        take_(take),
        refusals_(refusals),
        fixed_(filter_.fixed()) {}

  void run() {
    // tp is counted in devices, and dp takes what is left, unless it is allowed to be 1 only.
    for (const int tensor : divisors(devices_)) {
      if (!filter_.takes("tp", tensor, fixed_.tensor, 1)) continue;
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && tensor == 1) continue;
        if (!filter_.takes("sp", sequence_parallel, fixed_.sequence_parallel, false)) continue;
        for (const int context : divisors(devices_ / tensor)) {
          if (!filter_.takes("cp", context, fixed_.context, 1)) continue;
          if (!check(config_, {.tensor = tensor, .context = context, .sequence_parallel = sequence_parallel}).ok()) {
            refuse(context > 1 ? "the sequence cannot be divided" : "heads, groups or the MLP cannot be divided");
            continue;
          }
          pipelines({.tensor = tensor, .context = context, .sequence_parallel = sequence_parallel});
        }
      }
    }
  }

 private:
  void refuse(const std::string& reason) { ++refusals_[reason]; }

  void pipelines(ParallelPlan plan) {
    for (const int pipeline : divisors(devices_ / plan.tensor / plan.context)) {
      if (!filter_.takes("pp", pipeline, fixed_.pipeline, 1)) continue;
      plan.pipeline = pipeline;
      plan.data = devices_ / plan.tensor / plan.context / pipeline;
      if (!filter_.takes("dp", plan.data, fixed_.data, 1)) continue;
      if (pipeline > config_.layers) {
        refuse("there are more stages than layers");
        continue;
      }
      if (batch_ % plan.data != 0) {
        refuse("the batch cannot be divided among the replicas");
        continue;
      }
      for (const int micro_batch : divisors(batch_ / plan.data)) {
        if (filter_.is_fixed("mbs") && micro_batch != fixed_.micro_batch) continue;
        plan.micro_batch = micro_batch;
        schedules(plan);
      }
    }
  }

  void schedules(ParallelPlan plan) {
    for (const ScheduleKind kind : kScheduleKinds) {
      const bool is_plain = kind == ScheduleKind::kOneForwardOneBackward;
      if (plan.pipeline == 1 && !is_plain) continue;
      if (!filter_.takes("schedule", kind, fixed_.schedule, ScheduleKind::kOneForwardOneBackward)) continue;
      const bool interleaves = kind == ScheduleKind::kInterleaved, is_v = kind == ScheduleKind::kZeroBubbleV;
      for (int chunks = interleaves || is_v ? 2 : 1; chunks <= (interleaves ? kMostChunks : is_v ? 2 : 1); ++chunks) {
        if (plan.pipeline * chunks > config_.layers) break;
        if (filter_.is_fixed("chunks") && chunks != fixed_.chunks) continue;
        if (interleaves && runtime_.interleaves_evenly && plan.microbatches(batch_) % plan.pipeline != 0) {
          refuse("interleaved schedules need a multiple of pp microbatches");
          continue;
        }
        plan.schedule = kind;
        plan.chunks = chunks;
        plan.ends = fixed_.ends;
        if (!plan.ends.is_even() &&
            !as_result([&] { return stages_with_ends(config_.layers, plan.stages(), plan.ends); }).ok()) {
          refuse("the given layers of the first and the last stage do not suit the number of stages");
          continue;
        }
        states(plan);
      }
    }
  }

  void states(ParallelPlan plan) {
    for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights}) {
      if (zero != ZeroStage::kNone && plan.replicas() == 1) continue;
      if (!filter_.takes("zero", zero, fixed_.zero, ZeroStage::kNone)) continue;
      plan.zero = zero;
      for (const bool overlap : {false, true}) {
        if (overlap && plan.replicas() == 1) continue;
        if (!filter_.takes("overlap", overlap, fixed_.overlap_gradients, false)) continue;
        plan.overlap_gradients = overlap;
        for (const Recomputation recompute : {Recomputation::kNone, Recomputation::kSelective, Recomputation::kFull}) {
          if (!filter_.takes("recompute", recompute, fixed_.recompute, Recomputation::kNone)) continue;
          plan.recompute = recompute;
          plan.recomputed_layers = filter_.is_fixed("recompute") ? fixed_.recomputed_layers : 0;
          if (const std::string& reason = refusal(plan); !reason.empty())
            refuse(reason);
          else
            take_(plan);
        }
      }
    }
  }

  // The reasons of a runtime depend on few parts of a plan.
  const std::string& refusal(const ParallelPlan& plan) {
    std::size_t place = std::size_t(plan.schedule);
    for (const auto& [value, count] : {std::pair{int(plan.pipeline > 1), 2},
                                       {int(plan.context > 1), 2},
                                       {int(plan.chunks > 1), 2},
                                       {int(plan.sequence_parallel), 2},
                                       {int(plan.zero), 4},
                                       {int(plan.overlap_gradients), 2},
                                       {int(plan.recompute), 3}})
      place = place * std::size_t(count) + std::size_t(value);
    auto& known = known_[place];
    if (!known) known = runtime_.refusal(plan);
    return *known;
  }

  const TransformerConfig& config_;
  const TrainingRuntime& runtime_;
  const int batch_, devices_;
  const PlanFilter filter_;
  const std::function<void(const ParallelPlan&)>& take_;
  Refusals& refusals_;
  const ParallelPlan fixed_;
  std::array<std::optional<std::string>, std::size_t(5) * 2 * 2 * 2 * 2 * 4 * 2 * 3> known_{};
};

}  // namespace

Status check(const PlanRules& rules) {
  ParallelPlan plan;
  TUTTI_TRY(set_in_plan(plan, rules.fix));
  for (const std::string& key : rules.allow) {
    const auto& known = parallel_plan_keys();
    if (std::find(known.begin(), known.end(), key) == known.end())
      return Error{.code = Code::kUsage,
                   .detail = fmt::format("plan: there is no axis '{}'", key),
                   .hint = did_you_mean(nearest(key, known), "expected some of " + join(known, ", "))};
  }
  return {};
}

void for_each_plan(const TransformerConfig& config, const TrainingRuntime& runtime, int global_batch, int devices,
                   const PlanRules& rules, const std::function<void(const ParallelPlan&)>& take, Refusals& refusals) {
  Enumeration(config, runtime, global_batch, devices, rules, take, refusals).run();
}

}  // namespace tutti::planning
