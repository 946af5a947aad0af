#pragma once
// The times of each action of a schedule: predicted from the cost of the stages, or measured in a run. Drawings, the
// bubble and the memory are derived from it.
#include <optional>
#include <vector>

#include "tutti/planning/schedules/schedule.h"

namespace tutti {

// The time of each stage for one microbatch, in any unit. A list has one value for all stages, or one per stage. The
// defaults are those of the papers: each of the two gradients of a layer takes as long as its forward.
struct StageCosts {
  std::vector<double> forward{1}, backward_input{1}, backward_weight{1};
  double message = 0;  // transfer between consecutive stages on different ranks
  // Of `message`: while a message passes, later ones of the same rank to the same rank wait.
  double passing = 0;
};

struct TimedAction {
  Action action;
  double begin, end;
};

struct Timeline {
  int chunks = 1;
  std::vector<std::vector<TimedAction>> ranks;

  double length() const;        // from the first begin to the last end
  double busy(int rank) const;  // the part of it spent in actions
  // Waiting time divided by working time: length() over the work of the busiest rank, minus one. (The papers'
  // "bubble".)
  double bubble() const;
  // The maximum, over time, of microbatches times chunks whose activations a rank keeps. They are kept from the end of
  // their forward to the end of the last part of their backward.
  int most_kept(int rank) const;
};

// Runs the schedule on a simulated clock. Throws Exception if the ranks would wait for each other forever, with the
// actions and what they wait for. Also throws for negative costs and for a wrong number of costs.
Timeline simulate(const Schedule& schedule, const StageCosts& costs = {});

// The bubble by the papers' formulas, if one applies. They need stages of equal costs and free messages. kInterleaved
// needs at least p microbatches, or, with a larger group, a multiple of the group. kZeroBubbleH1 needs at least p
// microbatches. kZeroBubbleV needs at least 2p - 1 microbatches and three equal costs.
std::optional<double> bubble_by_formula(const Schedule& schedule, const StageCosts& costs = {});

}  // namespace tutti
