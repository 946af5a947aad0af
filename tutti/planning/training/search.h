#pragma once
// Chooses how a training is divided among the devices of a cluster. All plans are compared, so the answer is the best
// one that the cost model knows. It is the same on every machine, and takes seconds for tens of thousands of devices.
//
//   const TransformerConfig model = transformer_preset("gpt3-175b").or_throw();
//   const Cluster cluster = cluster_preset("a100-sxm", 128).or_throw();
//   const TrainingPlans plans = plan_training(model, cluster, 1536, {.runtime = megatron_runtime()}).or_throw();
//   to_string(plans.best.at(0).plan)  // "tp=8,pp=..."
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/training/candidates.h"
#include "tutti/planning/training/cluster.h"
#include "tutti/planning/training/memory.h"
#include "tutti/planning/training/parallel_plan.h"
#include "tutti/planning/training/step_time.h"
#include "tutti/planning/training/training_runtime.h"
#include "tutti/planning/transformer_config.h"

namespace tutti {

enum class PlanGoal {
  kTime,    // the fastest step
  kMemory,  // the least memory of the fullest rank, and then the fastest step
};

struct PlanOptions {
  TrainingRuntime runtime;
  planning::PlanRules rules{};
  PlanGoal goal = PlanGoal::kTime;
  double memory = 0;  // bytes that a rank may use; 0: usable_memory()
  int best = 10;      // plans to return
};

struct RankedPlan {
  ParallelPlan plan;
  planning::StepTime time;
  planning::RankMemory memory;  // of the fullest rank
  int fullest = 0;              // rank of the pipeline
};

// Plans that use the same axes.
struct PlanFamily {
  std::string name;  // "tensor + pipeline"
  bool fits = false;
  RankedPlan best;         // the fastest by closed form; where none fits, the one that needs least memory
  std::int64_t plans = 0;  // that were compared
};

struct TrainingPlans {
  double limit = 0;                  // bytes that a rank may use
  std::vector<RankedPlan> best;      // best first, timed exactly; empty: nothing fits
  std::vector<RankedPlan> front;     // no other plan is faster and needs less; the fastest first
  std::vector<PlanFamily> families;  // the fastest first, those that do not fit last
  std::int64_t compared = 0, fitting = 0;
  planning::Refusals refusals;
  // None of the plans that were compared can be faster than best[0]: the lower bound of each one that was not timed
  // exactly is above its time.
  bool is_proven = false;
};

// kInvalidArgument for a model, a cluster or a batch that cannot be planned for, kUsage for wrong rules. Where nothing
// fits the answer is ok: `families` has what each would need.
Result<TrainingPlans> plan_training(const TransformerConfig& model, const Cluster& cluster, int global_batch,
                                    const PlanOptions& options);

// Time and memory of one plan, whether it fits or not. kInvalidArgument if it does not divide the devices, the model or
// the batch.
Result<RankedPlan> evaluate(const TransformerConfig& model, const Cluster& cluster, int global_batch,
                            const TrainingRuntime& runtime, const ParallelPlan& plan);

}  // namespace tutti
