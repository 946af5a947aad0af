// All forwards, then all backwards in the same order. Every rank keeps the activations of all microbatches; the bubble
// is that of 1F1B, (p-1)/m of the work.
#include "tutti/planning/schedules/schedule.h"

namespace tutti {

std::vector<Action> fill_drain(const PipelineShape& shape, int) {
  std::vector<Action> actions;
  for (int i = 0; i < shape.microbatches; ++i) actions.push_back({ActionKind::kForward, i, 0});
  for (int i = 0; i < shape.microbatches; ++i) actions.push_back({ActionKind::kBackward, i, 0});
  return actions;
}

}  // namespace tutti
