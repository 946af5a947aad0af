#pragma once
// When each action of a schedule runs: predicted from the cost of the stages, or measured in a run. What is drawn and
// what the bubble and the memory are read from.
#include <optional>
#include <vector>

#include "tutti/planning/schedules/schedule.h"

namespace tutti {

// Time that the stages take for one microbatch, in any unit. A list has one value for all stages, or one for each. The
// defaults are those of the papers: a layer's two gradients take as long as its forward, each.
struct StageCosts {
  std::vector<double> forward{1}, backward_input{1}, backward_weight{1};
  double message = 0;  // between a stage and the next one on another rank
};

struct TimedAction {
  Action action;
  double begin, end;
};

struct Timeline {
  int chunks = 1;
  std::vector<std::vector<TimedAction>> ranks;

  double length() const;        // from the first beginning to the last end
  double busy(int rank) const;  // of it, in actions
  // Waiting as a share of working: length() over the work of the busiest rank, less one. (The papers' "bubble".)
  double bubble() const;
  // The most microbatches times chunks whose activations a rank kept at once: from the end of their forward to the end
  // of the last part of their backward.
  int most_kept(int rank) const;
};

// Runs the schedule on a clock. Throws Exception where the ranks would wait for each other for ever, saying which
// action waits for what, and for costs that are negative or not as many as there are stages.
Timeline simulate(const Schedule& schedule, const StageCosts& costs = {});

// What the papers say of the bubble, where they do: stages of equal costs; kInterleaved from p microbatches, or such as
// larger groups divide; kZeroBubbleH1 and V from p and 2p - 1 microbatches, V with three equal costs.
std::optional<double> bubble_by_formula(const Schedule& schedule, const StageCosts& costs = {});

}  // namespace tutti
