// 1F1B with each backward cut in two: the gradient of the input, which the rank before waits for, and the gradient of
// the weights, for which nobody waits. Rank r lets the latter lag r microbatches behind: so the drain of the pipeline
// is filled with it, and no rank keeps more than rank 0 of 1F1B, p microbatches. Where the two halves and a forward
// take equal times, the bubble is a third of 1F1B's.
#include <algorithm>

#include "tutti/planning/schedules/schedule.h"

namespace tutti {

std::vector<Action> zero_bubble_h1(const PipelineShape& shape, int rank) {
  const int total = shape.microbatches, warm_up = std::min(shape.ranks - rank - 1, total);
  std::vector<Action> actions;
  for (int i = 0; i < warm_up; ++i) actions.push_back({ActionKind::kForward, i, 0});
  for (int i = 0; i < total; ++i) {
    if (warm_up + i < total) actions.push_back({ActionKind::kForward, warm_up + i, 0});
    actions.push_back({ActionKind::kBackwardInput, i, 0});
    if (i >= rank) actions.push_back({ActionKind::kBackwardWeight, i - rank, 0});
  }
  for (int i = std::max(total - rank, 0); i < total; ++i) actions.push_back({ActionKind::kBackwardWeight, i, 0});
  return actions;
}

}  // namespace tutti
