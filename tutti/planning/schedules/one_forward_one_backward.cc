// Rank r warms up with as many forwards as there are ranks after it, then alternates, then drains. So it never keeps
// the activations of more than p - r microbatches, however many there are.
#include <algorithm>

#include "tutti/planning/schedules/schedule.h"

namespace tutti {

std::vector<Action> one_forward_one_backward(const PipelineShape& shape, int rank) {
  const int total = shape.microbatches, warm_up = std::min(shape.ranks - rank - 1, total);
  std::vector<Action> actions;
  for (int i = 0; i < warm_up; ++i) actions.push_back({ActionKind::kForward, i, 0});
  for (int i = 0; i < total; ++i) {
    if (warm_up + i < total) actions.push_back({ActionKind::kForward, warm_up + i, 0});
    actions.push_back({ActionKind::kBackward, i, 0});
  }
  return actions;
}

}  // namespace tutti
