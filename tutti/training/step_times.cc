#include "tutti/training/step_times.h"

#include "tutti/comm/collectives.h"

namespace tutti {

void PhaseTotals::add(const StepTimes& times) {
  sum_.step += times.step;
  sum_.data += times.data;
  sum_.forward += times.forward;
  sum_.backward += times.backward;
  sum_.exposed += times.exposed;
  sum_.optimizer += times.optimizer;
  ++steps_;
}

std::vector<TimerReading> PhaseTotals::readings() const {
  return {{"data", sum_.data, steps_},           {"forward", sum_.forward, steps_},
          {"backward", sum_.backward, steps_},   {"exposed communication", sum_.exposed, steps_},
          {"optimizer", sum_.optimizer, steps_}, {"step", sum_.step, steps_}};
}

double mean_over_ranks(const Group& group, double value) {
  if (group.size() > 1) all_reduce(group, std::span(&value, 1), ReduceOp::kAvg);
  return value;
}

}  // namespace tutti
