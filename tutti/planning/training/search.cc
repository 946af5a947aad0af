// Memory first: most plans of a large model fit nowhere. Those that fit are timed by the closed form, and the hundred
// fastest on the simulated clock. Then each plan whose lower bound is below the best time is simulated too, so the best
// one is known to be the best.
#include "tutti/planning/training/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr int kTimed = 100;
// Actions that are simulated in all: about half a second.
constexpr std::int64_t kSimulatedActions = 8'000'000;

struct Candidate {
  ParallelPlan plan;
  double estimate, lower, memory;
};

std::string family_of(const ParallelPlan& plan) {
  std::string name;
  const auto add = [&](bool is_used, const char* axis) {
    if (is_used) name += (name.empty() ? "" : " + ") + std::string(axis);
  };
  add(plan.tensor > 1, "tensor");
  add(plan.context > 1, "context");
  add(plan.pipeline > 1, "pipeline");
  add(plan.zero == ZeroStage::kWeights, "fully sharded");
  return name.empty() ? "data only" : name;
}
int family_number(const ParallelPlan& plan) {
  return int(plan.tensor > 1) + 2 * int(plan.context > 1) + 4 * int(plan.pipeline > 1) +
         8 * int(plan.zero == ZeroStage::kWeights);
}

std::int64_t actions_of(const ParallelPlan& plan, int global_batch) {
  return std::int64_t(plan.stages()) * plan.microbatches(global_batch) * 3;
}

class Search {
 public:
  Search(const planning::StepModel& model, const PlanOptions& options, double limit)
      : model_(model), options_(options), chooses_ends_(planning::PlanFilter(options.rules).chooses_ends()) {
    found_.limit = limit;
  }

  TrainingPlans run(int devices) {
    planning::for_each_plan(
        model_.config(), model_.runtime(), model_.global_batch(), devices, options_.rules,
        [&](const ParallelPlan& plan) { take(plan); }, found_.refusals);
    found_.fitting = std::int64_t(candidates_.size());
    if (!candidates_.empty()) {
      std::sort(candidates_.begin(), candidates_.end(), [&](const Candidate& one, const Candidate& other) {
        return key(one, one.estimate) < key(other, other.estimate);
      });
      time_best();
      find_front();
    }
    finish_families();
    return std::move(found_);
  }

 private:
  struct Family {
    PlanFamily family;
    double least = 0;  // memory, or time if it fits
  };

  // The order of plans by goal, time, axes: the last so that of equals the simplest wins.
  std::tuple<double, double, int, ParallelPlan> key(const Candidate& one, double step) const {
    const double first = options_.goal == PlanGoal::kMemory ? one.memory : 0;
    return {first, step, axes_of(one.plan), one.plan};
  }

  planning::RankMemory memory(const ParallelPlan& plan, int* rank = nullptr) const {
    const int microbatches = plan.microbatches(model_.global_batch());
    const int fullest = planning::fullest_rank(model_.config(), plan, model_.runtime(), microbatches);
    if (rank) *rank = fullest;
    return planning::memory_of_rank(model_.config(), plan, model_.runtime(), microbatches, fullest);
  }

  // A plan of a pipeline is taken twice if other layers at its ends make its slowest stage faster.
  void take(ParallelPlan plan) {
    take_recomputed(plan);
    if (plan.pipeline == 1 || !model_.runtime().gives_end_layers || !chooses_ends_) return;
    plan.ends = model_.balanced_ends(plan);
    if (!plan.ends.is_even()) take_recomputed(plan);
  }

  void take_recomputed(const ParallelPlan& plan) {
    ++found_.compared;
    const double needed = memory(plan).total();
    const bool fits = needed <= found_.limit;
    note(plan, fits, needed);
    if (fits) add(plan, needed);
    // Where all layers are recomputed, fewer may do: the least number that fits is the fastest.
    if (plan.recompute != Recomputation::kFull || plan.recomputed_layers != 0 || is_given("recompute")) return;
    ParallelPlan kept = plan;
    kept.recompute = Recomputation::kNone;
    if (!fits || memory(kept).total() <= found_.limit) return;
    int most = 0;
    for (int stage = 0; stage < plan.stages(); ++stage)
      most = std::max(most, layers_of_stage(model_.config().layers, plan.stages(), plan.ends, stage));
    for (int layers = 1; layers < most; ++layers) {
      ParallelPlan fewer = plan;
      fewer.recomputed_layers = layers;
      const double bytes = memory(fewer).total();
      if (bytes > found_.limit) continue;
      ++found_.compared;
      note(fewer, true, bytes);
      add(fewer, bytes);
      break;
    }
  }

  bool is_given(const std::string& key) const {
    return std::any_of(options_.rules.fix.begin(), options_.rules.fix.end(),
                       [&](const std::string& part) { return part.substr(0, part.find('=')) == key; });
  }

  void add(const ParallelPlan& plan, double needed) {
    const planning::StepModel::Bounds bounds = model_.bounds(plan);
    candidates_.push_back({plan, bounds.estimate, bounds.lower, needed});
    Family& family = families_[family_number(plan)];
    if (family.least == 0 || bounds.estimate < family.least ||
        (bounds.estimate == family.least && axes_of(plan) < axes_of(family.family.best.plan))) {
      family.least = bounds.estimate;
      family.family.best.plan = plan;
    }
  }

  void note(const ParallelPlan& plan, bool fits, double needed) {
    Family& family = families_[family_number(plan)];
    ++family.family.plans;
    if (fits && !family.family.fits) {
      family.family.fits = true;
      family.least = 0;
    }
    if (!fits) {
      ++found_.refusals["more memory than a device has"];
      if (!family.family.fits && (family.least == 0 || needed < family.least)) {
        family.least = needed;
        family.family.best.plan = plan;
      }
    }
  }

  RankedPlan ranked(const ParallelPlan& plan, bool exactly) const {
    RankedPlan ranked{.plan = plan};
    ranked.memory = memory(plan, &ranked.fullest);
    ranked.time = exactly ? model_.exact(plan) : model_.estimate(plan);
    return ranked;
  }

  void time_best() {
    std::vector<std::pair<std::tuple<double, double, int, ParallelPlan>, std::size_t>> timed;
    std::vector<bool> is_timed(candidates_.size());
    std::int64_t left = kSimulatedActions;
    const auto simulate = [&](std::size_t place) {
      const Candidate& candidate = candidates_[place];
      const std::int64_t actions = actions_of(candidate.plan, model_.global_batch());
      if (actions > left && !timed.empty()) return false;
      left -= actions;
      timed.emplace_back(key(candidate, model_.exact_step(candidate.plan)), place);
      is_timed[place] = true;
      return true;
    };
    for (std::size_t place = 0; place < std::min<std::size_t>(kTimed, candidates_.size()); ++place) simulate(place);
    auto best = *std::min_element(timed.begin(), timed.end());

    found_.is_proven = true;
    std::vector<std::size_t> open;
    for (std::size_t place = 0; place < candidates_.size(); ++place)
      if (!is_timed[place] && key(candidates_[place], candidates_[place].lower) < best.first) open.push_back(place);
    std::sort(open.begin(), open.end(), [&](std::size_t one, std::size_t other) {
      return key(candidates_[one], candidates_[one].lower) < key(candidates_[other], candidates_[other].lower);
    });
    for (const std::size_t place : open) {
      if (best.first < key(candidates_[place], candidates_[place].lower)) break;
      if (!simulate(place)) {
        found_.is_proven = false;
        break;
      }
      best = std::min(best, timed.back());
    }

    std::sort(timed.begin(), timed.end());
    for (const auto& [order, place] : timed) {
      if (int(found_.best.size()) == options_.best) break;
      found_.best.push_back(ranked(candidates_[place].plan, true));
    }
  }

  // From the fastest on, each plan that needs clearly less memory than all before it. Nobody takes one twice as slow.
  void find_front() {
    constexpr double kClearly = 0.9, kSlowest = 2;
    std::vector<std::size_t> order(candidates_.size());
    for (std::size_t place = 0; place < order.size(); ++place) order[place] = place;
    if (options_.goal != PlanGoal::kTime)
      std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
        return std::pair(candidates_[one].estimate, candidates_[one].plan) <
               std::pair(candidates_[other].estimate, candidates_[other].plan);
      });
    double least = std::numeric_limits<double>::infinity();
    for (const std::size_t place : order) {
      const Candidate& candidate = candidates_[place];
      if (candidate.estimate > kSlowest * candidates_[order[0]].estimate) break;
      if (candidate.memory >= kClearly * least) continue;
      least = candidate.memory;
      found_.front.push_back(ranked(candidate.plan, false));
    }
  }

  void finish_families() {
    for (auto& [number, family] : families_) {
      family.family.name = family_of(family.family.best.plan);
      family.family.best = ranked(family.family.best.plan, false);
      found_.families.push_back(family.family);
    }
    std::stable_sort(
        found_.families.begin(), found_.families.end(), [](const PlanFamily& one, const PlanFamily& other) {
          const auto order = [](const PlanFamily& family) {
            return std::pair(!family.fits, family.fits ? family.best.time.step() : family.best.memory.total());
          };
          return order(one) < order(other);
        });
  }

  const planning::StepModel& model_;
  const PlanOptions& options_;
  const bool chooses_ends_;
  TrainingPlans found_;
  std::vector<Candidate> candidates_;
  std::map<int, Family> families_;
};

Status check_inputs(const TransformerConfig& model, const Cluster& cluster, int global_batch) {
  TUTTI_TRY(check(model));
  if (global_batch < 1)
    return invalid_argument(fmt::format("a global batch of {} samples, expected 1 or more", global_batch));
  return check(cluster);
}

}  // namespace

Result<TrainingPlans> plan_training(const TransformerConfig& model, const Cluster& cluster, int global_batch,
                                    const PlanOptions& options) {
  TUTTI_TRY(check_inputs(model, cluster, global_batch));
  TUTTI_TRY(check(options.rules));
  const planning::StepModel costs(model, cluster, options.runtime, global_batch);
  return Search(costs, options, options.memory > 0 ? options.memory : usable_memory(cluster)).run(cluster.devices());
}

Result<RankedPlan> evaluate(const TransformerConfig& model, const Cluster& cluster, int global_batch,
                            const TrainingRuntime& runtime, const ParallelPlan& plan) {
  TUTTI_TRY(check_inputs(model, cluster, global_batch));
  TUTTI_TRY(check(model, {.tensor = plan.tensor,
                          .pipeline = plan.pipeline,
                          .chunks = plan.chunks,
                          .context = plan.context,
                          .sequence_parallel = plan.sequence_parallel}));
  if (plan.devices() != cluster.devices())
    return invalid_argument(
        fmt::format("plan {} is for {} devices, and there are {}", to_string(plan), plan.devices(), cluster.devices()),
        fmt::format("the product of tp, cp, pp and dp must be {}", cluster.devices()));
  if (const std::int64_t unit = plan.batch_unit(); global_batch % unit != 0)
    return invalid_argument(
        fmt::format("plan {} takes samples in multiples of {} (dp x mbs), and the global batch is {}", to_string(plan),
                    unit, global_batch),
        global_batch < unit
            ? fmt::format("a smaller mbs, or a batch of {}", unit)
            : fmt::format("a batch of {} or {}", global_batch / unit * unit, (global_batch / unit + 1) * unit));
  const int microbatches = plan.microbatches(global_batch);
  return as_result([&] {
    (void)stages_with_ends(model.layers, plan.stages(), plan.ends);
    const planning::StepModel costs(model, cluster, runtime, global_batch);
    RankedPlan ranked{.plan = plan, .time = costs.exact(plan)};
    ranked.fullest = planning::fullest_rank(model, plan, runtime, microbatches);
    ranked.memory = planning::memory_of_rank(model, plan, runtime, microbatches, ranked.fullest);
    return ranked;
  });
}

}  // namespace tutti
