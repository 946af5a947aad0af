#include "tutti/training/training_step.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/comm/collectives.h"

namespace tutti {

void PhaseTotals::add(const TrainingStep& step) {
  sum_.seconds += step.seconds;
  sum_.data += step.data;
  sum_.forward += step.forward;
  sum_.backward += step.backward;
  sum_.exposed += step.exposed;
  sum_.optimizer += step.optimizer;
  ++steps_;
}

std::vector<TimerReading> PhaseTotals::readings() const {
  return {{"data", sum_.data, steps_},           {"forward", sum_.forward, steps_},
          {"backward", sum_.backward, steps_},   {"exposed communication", sum_.exposed, steps_},
          {"optimizer", sum_.optimizer, steps_}, {"step", sum_.seconds, steps_}};
}

double mean_over_ranks(const Group& group, double value) {
  if (group.size() > 1) all_reduce(group, std::span(&value, 1), ReduceOp::kAvg);
  return value;
}

Error loss_not_finite(const Group& world, double loss, const std::string& where, const std::string& of_samples,
                      std::string hint) {
  return Error{.code = Code::kNonFinite,
               .detail = fmt::format("the loss of {} is {}{}{}", where, std::isnan(loss) ? "not a number" : "infinite",
                                     of_samples.empty() ? "" : " ", of_samples),
               .hint = std::move(hint),
               .group = world.name(),
               .rank = world.rank()};
}

std::string in_samples_of(const Group& world) { return fmt::format("in the samples of rank {}", world.rank()); }

}  // namespace tutti
