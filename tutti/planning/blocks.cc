#include "tutti/planning/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tutti/base/text.h"
#include "tutti/planning/schedules/timeline.h"

namespace tutti {
namespace {

constexpr double kMostDivisions = 200;  // that are tried one by one
constexpr int kMostTried = 4000;        // of all others, in one search

double over(double bytes, double bandwidth) { return bandwidth > 0 ? bytes / bandwidth : 0; }

// The number of ways to cut `blocks` into `stages`, or a number above kMostDivisions.
double divisions(int blocks, int stages) {
  double ways = 1;
  for (int i = 1; i < stages && ways <= kMostDivisions; ++i) ways = ways * (blocks - i) / i;
  return ways;
}

void add_divisions(int begin, int blocks, int stages, std::vector<LayerRange>& cut,
                   std::vector<std::vector<LayerRange>>& all) {
  if (stages == 1) {
    cut.push_back({begin, blocks});
    all.push_back(cut);
    cut.pop_back();
    return;
  }
  for (int end = begin + 1; end <= blocks - (stages - 1); ++end) {
    cut.push_back({begin, end});
    add_divisions(end, blocks, stages - 1, cut, all);
    cut.pop_back();
  }
}

// Every stage of several takes part in the norm of a sharded optimizer, so each needs parameters.
bool can_shard(const BlockChain& chain, const std::vector<LayerRange>& cut, int replicas) {
  if (!chain.can_shard || replicas == 1 || chain.state_bytes == 0) return false;
  return cut.size() == 1 || std::all_of(cut.begin(), cut.end(), [&](const LayerRange& stage) {
           return std::any_of(chain.blocks.begin() + stage.begin, chain.blocks.begin() + stage.end,
                              [](const BlockCost& block) { return block.trained_bytes > 0; });
         });
}

bool cuts_apart(const std::vector<LayerRange>& cut, const std::vector<LayerRange>& together) {
  return std::any_of(cut.begin(), cut.end(), [&](const LayerRange& stage) {
    return std::any_of(together.begin(), together.end(),
                       [&](const LayerRange& blocks) { return stage.end > blocks.begin && stage.end < blocks.end; });
  });
}

}  // namespace

std::string to_string(const BlockPlan& plan) {
  std::string text;
  if (plan.stages.size() > 1) {
    std::vector<std::string> ranges;
    for (const LayerRange& stage : plan.stages)
      ranges.push_back(stage.size() == 1 ? fmt::format("{}", stage.begin)
                                         : fmt::format("{}-{}", stage.begin, stage.end - 1));
    text = fmt::format("{} stages (blocks {}) x ", plan.stages.size(), join(ranges, ", "));
  }
  text += fmt::format("{} replica{}", plan.replicas, plan.replicas == 1 ? "" : "s");
  if (plan.microbatches > 1) text += fmt::format(", {} microbatches", plan.microbatches);
  return text + (plan.shards_optimizer ? ", sharded optimizer" : "");
}

Status check(const BlockPlan& plan, int blocks, int ranks, std::int64_t batch) {
  const auto wrong = [&](const std::string& why) {
    return invalid_argument(fmt::format("the plan \"{}\" {}", to_string(plan), why));
  };
  if (plan.replicas < 1 || plan.microbatches < 1 || plan.stages.empty())
    return wrong("needs at least one replica, one microbatch and one stage");
  int next = 0;
  for (const LayerRange& stage : plan.stages) {
    if (stage.begin != next || stage.size() < 1)
      return wrong(
          fmt::format("has a stage of the blocks [{}, {}) after block {}; stages are consecutive, and each has "
                      "at least one block",
                      stage.begin, stage.end, next - 1));
    next = stage.end;
  }
  if (next != blocks) return wrong(fmt::format("is for {} blocks; the model has {}", next, blocks));
  if (plan.ranks() != ranks) return wrong(fmt::format("is for {} ranks; there are {}", plan.ranks(), ranks));
  if (plan.shards_optimizer && plan.replicas == 1)
    return wrong("shards the optimizer over one replica; sharding needs several");
  const std::int64_t parts = std::int64_t(plan.replicas) * plan.microbatches;
  if (batch < parts || batch % parts != 0)
    return wrong(fmt::format("cuts a batch into {} parts, but the batch has {} samples; choose a multiple of {}", parts,
                             batch, parts));
  return {};
}

namespace {

// What a plan costs apart from its optimizer.
struct StagesCost {
  double seconds = 0;               // of the pipeline
  std::vector<double> trained;      // bytes of parameters, by stage
  std::vector<double> activations;  // bytes, by stage
};

// A long pipeline repeats itself: its length is that of a shorter one, and so many times the steady part.
StagesCost cost_of(const BlockChain& chain, const BlockPlan& plan, std::int64_t batch) {
  const double rows = double(batch) / plan.replicas / plan.microbatches;
  const int stages = int(plan.stages.size());
  StagesCost cost;
  StageCosts times{.forward = {}, .backward_input = {}, .backward_weight = std::vector<double>(plan.stages.size(), 0)};
  for (const LayerRange& stage : plan.stages) {
    double forward = 0, backward = 0, bytes = 0, activations = 0;
    for (int i = stage.begin; i < stage.end; ++i) {
      const BlockCost& block = chain.blocks[std::size_t(i)];
      forward += block.forward.of(rows);
      backward += block.backward.of(rows);
      bytes += block.trained_bytes;
      activations += block.kept_bytes * rows;
    }
    times.forward.push_back(forward);
    times.backward_input.push_back(backward);
    cost.trained.push_back(bytes);
    cost.activations.push_back(activations);
    if (stage.begin > 0) {  // its input, whose sizes a message of its own announces
      const double input = chain.blocks[std::size_t(stage.begin - 1)].output_bytes * rows;
      cost.activations.back() += input;
      times.message = std::max(times.message, 2 * chain.message_start + over(input, chain.message_bandwidth));
    }
  }
  const auto timeline_of = [&](int microbatches) {
    return simulate(
        make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = stages, .microbatches = microbatches}), times);
  };
  const int simulated = std::min(plan.microbatches, 4 * stages);
  const Timeline timeline = timeline_of(simulated);
  cost.seconds = timeline.length();
  if (plan.microbatches > simulated)
    cost.seconds += (plan.microbatches - simulated) * (timeline.length() - timeline_of(3 * stages).length()) / stages;
  for (int stage = 0; stage < stages; ++stage) cost.activations[std::size_t(stage)] *= timeline.most_kept(stage);
  return cost;
}

RankedBlockPlan ranked(const BlockChain& chain, const BlockPlan& plan, const StagesCost& cost) {
  RankedBlockPlan result{.plan = plan, .pipeline = cost.seconds};
  double weights = 0;
  for (const BlockCost& block : chain.blocks) weights += block.weight_bytes;
  const double replicas = plan.replicas, steps = plan.shards_optimizer ? replicas : 1;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const double bytes = cost.trained[stage];
    const double averages = plan.replicas == 1 || bytes == 0
                                ? 0
                                : chain.sum_start + over(2 * (replicas - 1) / replicas * bytes, chain.sum_bandwidth);
    const double optimizer = bytes * chain.step_seconds / steps;
    if (averages + optimizer > result.averages + result.optimizer) {
      result.averages = averages;
      result.optimizer = optimizer;
    }
    result.bytes = std::max(result.bytes, weights + bytes * (2 + chain.state_bytes / steps) + cost.activations[stage]);
  }
  return result;
}

// All plans with so many stages and microbatches, or the fastest of them.
class CutSearch {
 public:
  CutSearch(const BlockChain& chain, const BlockPlanOptions& options) : chain_(chain), options_(options) {}

  void run(int stages, int microbatches) {
    const int blocks = int(chain_.blocks.size()), replicas = options_.ranks / stages;
    plan_ = {.replicas = replicas, .microbatches = microbatches};
    const double rows = double(options_.batch / replicas / microbatches);
    if (divisions(blocks, stages) <= kMostDivisions) {
      std::vector<std::vector<LayerRange>> all;
      std::vector<LayerRange> cut;
      add_divisions(0, blocks, stages, cut, all);
      for (const auto& one : all) take(one);
      return;
    }
    std::vector<double> bytes;
    before_ = {0};
    std::vector<double> seconds;
    for (const BlockCost& block : chain_.blocks) {
      seconds.push_back(block.forward.of(rows) + block.backward.of(rows));
      before_.push_back(before_.back() + seconds.back());
      bytes.push_back(block.trained_bytes * (2 + chain_.state_bytes) + block.kept_bytes * rows * stages);
    }
    climb(balanced_stages(seconds, stages));
    climb(balanced_stages(bytes, stages));
    std::vector<LayerRange> cut;
    branch(cut, 0, stages);
  }

  std::vector<RankedBlockPlan> fitting;
  std::optional<RankedBlockPlan> least;  // needs least memory

 private:
  // Notes the plans of a cut. The seconds of the fastest that fits.
  double take(const std::vector<LayerRange>& cut) {
    double fastest = std::numeric_limits<double>::infinity();
    if (cuts_apart(cut, chain_.together)) return fastest;
    plan_.stages = cut;
    const StagesCost cost = cost_of(chain_, plan_, options_.batch);
    for (const bool shards : {false, true}) {
      if (shards && !can_shard(chain_, cut, plan_.replicas)) continue;
      plan_.shards_optimizer = shards;
      const RankedBlockPlan found = ranked(chain_, plan_, cost);
      if (!least || found.bytes < least->bytes) least = found;
      if (options_.memory > 0 && found.bytes > options_.memory) continue;
      fitting.push_back(found);
      fastest = std::min(fastest, found.seconds());
    }
    best_ = std::min(best_, fastest);
    return fastest;
  }

  // Moves one border at a time by one block, as long as that is faster.
  void climb(std::vector<LayerRange> cut) {
    double fastest = take(cut);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 1; stage < cut.size(); ++stage)
        for (const int step : {-1, 1}) {
          std::vector<LayerRange> other = cut;
          other[stage - 1].end = other[stage].begin = cut[stage].begin + step;
          if (other[stage - 1].size() < 1 || other[stage].size() < 1) continue;
          if (const double seconds = take(other); seconds < fastest) fastest = seconds, cut = other, moved = true;
        }
    }
  }

  // Adds stages from block `begin` on, and leaves out what cannot be faster than the fastest plan: the microbatches of
  // a stage take their time one after another, between the first one's way to it and the last one's way back. Of the
  // blocks that are left, a stage has at least the mean.
  void branch(std::vector<LayerRange>& cut, int begin, int left) {
    const int blocks = int(chain_.blocks.size());
    const auto is_slow = [&](double seconds_before, double seconds) {
      return seconds_before + plan_.microbatches * seconds >= best_;
    };
    if (left == 1) {
      if (tried_ >= kMostTried || is_slow(before_[std::size_t(begin)], before_.back() - before_[std::size_t(begin)]))
        return;
      ++tried_;
      cut.push_back({begin, blocks});
      take(cut);
      cut.pop_back();
      return;
    }
    for (int end = begin + 1; end <= blocks - (left - 1); ++end) {
      const double here = before_[std::size_t(begin)], there = before_[std::size_t(end)];
      if (is_slow(here, there - here)) return;  // and with more blocks it is slower
      if (is_slow(there, (before_.back() - there) / (left - 1))) continue;
      cut.push_back({begin, end});
      branch(cut, end, left - 1);
      cut.pop_back();
    }
  }

  const BlockChain& chain_;
  const BlockPlanOptions& options_;
  BlockPlan plan_;
  std::vector<double> before_;  // seconds of the blocks before each block, for one microbatch
  double best_ = std::numeric_limits<double>::infinity();
  int tried_ = 0;
};

}  // namespace

RankedBlockPlan evaluate(const BlockChain& chain, const BlockPlan& plan, std::int64_t batch) {
  return ranked(chain, plan, cost_of(chain, plan, batch));
}

Result<std::vector<RankedBlockPlan>> plan_blocks(const BlockChain& chain, const BlockPlanOptions& options) {
  if (chain.blocks.empty()) return invalid_argument("a model without blocks cannot be divided");
  if (options.ranks < 1 || options.batch < 1 || options.memory < 0)
    return invalid_argument(
        fmt::format("{} ranks, a batch of {} and {} bytes of memory; expected 1 or more of each "
                    "(memory 0: no limit)",
                    options.ranks, options.batch, options.memory));
  const std::int64_t least_rows = std::min<std::int64_t>(chain.least_rows, options.batch / options.ranks);
  CutSearch search(chain, options);
  for (int stages = 1; stages <= std::min(options.ranks, int(chain.blocks.size())); ++stages) {
    const int replicas = options.ranks / stages;
    if (options.ranks % stages != 0 || options.batch % replicas != 0) continue;
    const std::int64_t samples = options.batch / replicas;
    for (std::int64_t microbatches = 1; microbatches <= samples; ++microbatches)
      if (samples % microbatches == 0 && samples / microbatches >= least_rows) search.run(stages, int(microbatches));
  }
  std::vector<RankedBlockPlan>& fitting = search.fitting;
  const std::optional<RankedBlockPlan>& least = search.least;
  if (!least)
    return invalid_argument(
        fmt::format("a batch of {} cannot be divided among {} ranks of a model of {} block{}; "
                    "choose a batch that the number of ranks divides",
                    options.batch, options.ranks, chain.blocks.size(), chain.blocks.size() == 1 ? "" : "s"));
  if (fitting.empty())
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("no plan fits {} of a rank: \"{}\" needs least, {}",
                                       bytes_text(std::uint64_t(options.memory)), to_string(least->plan),
                                       bytes_text(std::uint64_t(least->bytes))),
                 .hint = "use more ranks, a smaller batch or smaller blocks"};
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const auto& a, const auto& b) { return a.seconds() < b.seconds(); });
  return std::move(fitting);
}

}  // namespace tutti
