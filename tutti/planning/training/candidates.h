#pragma once
// Every plan that a training may have on a number of devices.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/planning/training/parallel_plan.h"
#include "tutti/planning/training/training_runtime.h"
#include "tutti/planning/transformer_config.h"

namespace tutti::planning {

// What the search may choose.
struct PlanRules {
  std::vector<std::string> fix;    // parts of a plan that are given: "tp=2", "sp"
  std::vector<std::string> allow;  // keys of parallel_plan_keys() that may be other than in one process; empty: all
};
// kUsage for an unknown key, with the nearest one, for a wrong value, and for a key of `fix` that is given twice.
Status check(const PlanRules& rules);

// The rules as a filter: what each part of a plan may be.
class PlanFilter {
 public:
  explicit PlanFilter(const PlanRules& rules);  // for which check() is ok
  bool is_fixed(const char* key) const;
  bool chooses_ends() const;  // of pipelines: neither is fixed, and both are allowed
  const ParallelPlan& fixed() const { return fixed_; }
  // Whether a part may have `value`, where `fixed` is the given one and `plain` that of one process.
  template <class T>
  bool takes(const char* key, T value, T fixed, T plain) const {
    return is_fixed(key) ? value == fixed : value == plain || is_allowed(key);
  }

 private:
  bool is_allowed(const char* key) const;

  ParallelPlan fixed_;
  std::vector<std::string> keys_, allow_;
};

std::vector<int> divisors(int number);  // ascending

// Reasons for which plans were not taken, each with their number.
using Refusals = std::map<std::string, std::int64_t>;

// Calls `take` once for each plan that uses all `devices`, divides the model and the batch, and that the runtime and
// the rules allow. Of plans that differ in recomputed_layers alone, the one whose layers `take` is to choose is given
// with all layers. Stages are even, where the rules fix no layers of an end. The order is always the same.
void for_each_plan(const TransformerConfig& config, const TrainingRuntime& runtime, int global_batch, int devices,
                   const PlanRules& rules, const std::function<void(const ParallelPlan&)>& take, Refusals& refusals);

}  // namespace tutti::planning
