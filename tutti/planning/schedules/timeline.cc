// An action can start when its rank is free and its input is ready. A forward needs the forward of the stage before.
// The gradient of an input needs that of the stage after; on the last stage it needs the stage's own forward. The
// gradient of the weights needs that of the input. Each rank advances in its list as far as possible, repeatedly, until
// all lists are done or no rank advances.
#include "tutti/planning/schedules/timeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "tutti/base/error.h"

namespace tutti {
namespace {

double cost_of(const std::vector<double>& costs, int stage) { return costs[costs.size() == 1 ? 0 : stage]; }

void check(const char* what, const std::vector<double>& costs, int stages) {
  TUTTI_REQUIRE(costs.size() == 1 || costs.size() == std::size_t(stages), "pipeline: ", costs.size(), " costs of ",
                what, ", expected 1 or one for each of the ", stages, " stages");
  for (const double cost : costs)
    TUTTI_REQUIRE(cost >= 0 && cost < std::numeric_limits<double>::infinity(), "pipeline: a cost of ", cost, " for ",
                  what, ", expected 0 or more");
}

// Times of the forward and of the input gradient of each microbatch in each stage. Negative: not known yet.
class StageTimes {
 public:
  StageTimes(int stages, int microbatches)
      : microbatches_(microbatches), times_(std::size_t(2) * stages * microbatches, -1.0) {}
  double& forward(int stage, int microbatch) { return times_[std::size_t(stage) * microbatches_ + microbatch]; }
  double& backward(int stage, int microbatch) {
    return times_[times_.size() / 2 + std::size_t(stage) * microbatches_ + microbatch];
  }

 private:
  int microbatches_;
  std::vector<double> times_;
};

class StageClock {
 public:
  StageClock(const Schedule& schedule, const StageCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        ends_(schedule.shape.stages(), schedule.shape.microbatches),
        arrivals_(schedule.shape.stages(), schedule.shape.microbatches) {
    timeline_.chunks = schedule.shape.chunks;
    timeline_.ranks.resize(schedule.actions.size());
  }

  Timeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < int(schedule_.actions.size()); ++rank)
        while (advance(rank)) moved = true;
    }
    for (int rank = 0; rank < int(schedule_.actions.size()); ++rank) {
      const auto& actions = schedule_.actions[rank];
      const std::size_t done = timeline_.ranks[rank].size();
      TUTTI_REQUIRE(done == actions.size(), "pipeline: rank ", rank, " waits for ever before ",
                    to_string(actions[done], schedule_.shape.chunks), ", action ", done, " of ", actions.size(),
                    ": no rank makes what it needs in time");
    }
    return std::move(timeline_);
  }

 private:
  // The time when the action's input is ready: 0 if it needs none; empty if not known yet.
  std::optional<double> ready(const Action& action, int stage) {
    const auto known = [](double time) { return time < 0 ? std::optional<double>() : time; };
    switch (action.kind) {
      case ActionKind::kForward:
        return stage == 0 ? 0.0 : known(arrivals_.forward(stage - 1, action.microbatch));
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: {
        const auto own = known(ends_.forward(stage, action.microbatch));
        if (stage == schedule_.shape.stages() - 1 || !own) return own;
        return known(arrivals_.backward(stage + 1, action.microbatch));
      }
      case ActionKind::kBackwardWeight:
        return known(ends_.backward(stage, action.microbatch));
    }
    return {};
  }

  double cost(ActionKind kind, int stage) const {
    switch (kind) {
      case ActionKind::kForward:
        return cost_of(costs_.forward, stage);
      case ActionKind::kBackward:
        return cost_of(costs_.backward_input, stage) + cost_of(costs_.backward_weight, stage);
      case ActionKind::kBackwardInput:
        return cost_of(costs_.backward_input, stage);
      case ActionKind::kBackwardWeight:
        return cost_of(costs_.backward_weight, stage);
    }
    return 0;
  }

  bool advance(int rank) {
    auto& done = timeline_.ranks[rank];
    const auto& actions = schedule_.actions[rank];
    if (done.size() == actions.size()) return false;
    const Action& action = actions[done.size()];
    const int stage = schedule_.stage_of(rank, action.chunk);
    const auto since = ready(action, stage);
    if (!since) return false;
    const double begin = std::max(*since, done.empty() ? 0.0 : done.back().end);
    const double end = begin + cost(action.kind, stage);
    done.push_back({action, begin, end});
    if (action.kind == ActionKind::kForward) {
      ends_.forward(stage, action.microbatch) = end;
      arrivals_.forward(stage, action.microbatch) = arrival(end, rank, stage + 1);
    }
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput) {
      ends_.backward(stage, action.microbatch) = end;
      arrivals_.backward(stage, action.microbatch) = arrival(end, rank, stage - 1);
    }
    return true;
  }

  // When what a rank has made at `end` is where the stage `to` runs. A rank's messages leave in the order of its
  // actions.
  double arrival(double end, int rank, int to) {
    if (to < 0 || to == schedule_.shape.stages()) return end;
    const int other = schedule_.rank_of(to);
    if (other == rank) return end;
    if (costs_.passing == 0) return end + costs_.message;
    double& passed = passed_[{rank, other}];
    passed = std::max(passed, end) + costs_.passing;
    return passed + costs_.message - costs_.passing;
  }

  const Schedule& schedule_;
  const StageCosts& costs_;
  StageTimes ends_, arrivals_;
  std::map<std::pair<int, int>, double> passed_;  // when the last message between two ranks has passed
  Timeline timeline_;
};

}  // namespace

double Timeline::length() const {
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const auto& actions : ranks)
    for (const TimedAction& timed : actions) begin = std::min(begin, timed.begin), end = std::max(end, timed.end);
  return std::max(end - begin, 0.0);
}

double Timeline::busy(int rank) const {
  double sum = 0;
  for (const TimedAction& timed : ranks[rank]) sum += timed.end - timed.begin;
  return sum;
}

double Timeline::bubble() const {
  double busiest = 0;
  for (int rank = 0; rank < int(ranks.size()); ++rank) busiest = std::max(busiest, busy(rank));
  return busiest > 0 ? length() / busiest - 1 : 0;
}

int Timeline::most_kept(int rank) const {
  int kept = 0, most = 0;
  for (const TimedAction& timed : ranks[rank]) {
    if (timed.action.kind == ActionKind::kForward) most = std::max(most, ++kept);
    if (timed.action.kind == ActionKind::kBackward || timed.action.kind == ActionKind::kBackwardWeight) --kept;
  }
  return most;
}

Timeline simulate(const Schedule& schedule, const StageCosts& costs) {
  const int stages = schedule.shape.stages();
  check("forward", costs.forward, stages);
  check("the gradient of the input", costs.backward_input, stages);
  check("the gradient of the weights", costs.backward_weight, stages);
  TUTTI_REQUIRE(costs.message >= 0, "pipeline: a cost of ", costs.message, " for a message, expected 0 or more");
  TUTTI_REQUIRE(costs.passing >= 0 && costs.passing <= costs.message, "pipeline: a message of ", costs.message,
                " passes for ", costs.passing);
  return StageClock(schedule, costs).run();
}

std::optional<double> bubble_by_formula(const Schedule& schedule, const StageCosts& costs) {
  const PipelineShape& shape = schedule.shape;
  for (const auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight})
    if (std::any_of(list->begin(), list->end(), [&](double cost) { return cost != list->front(); })) return {};
  if (costs.message != 0) return {};
  const double p = shape.ranks, m = shape.microbatches;
  const double f = costs.forward[0], b = costs.backward_input[0], w = costs.backward_weight[0];
  if (shape.forward_only) return shape.chunks == 1 ? std::optional((p - 1) / m) : std::nullopt;
  switch (schedule.kind) {
    case ScheduleKind::kFillDrain:
    case ScheduleKind::kOneForwardOneBackward:
      return (p - 1) / m;
    case ScheduleKind::kInterleaved: {
      const int group = shape.microbatch_group > 0 ? shape.microbatch_group : shape.ranks;
      if (shape.microbatches % group != 0 && (group != shape.ranks || m < p)) return {};
      return (p - 1) / (m * shape.chunks);
    }
    case ScheduleKind::kZeroBubbleH1:
      if (m < p) return {};
      return (p - 1) * (f + b - w) / (m * (f + b + w));
    case ScheduleKind::kZeroBubbleV:
      if (m < 2 * p - 1 || f != b || b != w) return {};
      return (p - 1) / (6 * m);
  }
  return {};
}

}  // namespace tutti
