#pragma once
// How long a step of a training takes under a plan, and what the time is spent on.
//
//   const StepModel model(config, cluster, megatron_runtime(), 1536);
//   const StepTime time = model.exact(parse_parallel_plan("tp=8,pp=8,dp=16,mbs=1").or_throw());
//
// estimate() is a closed form, exact() runs the schedule on a simulated clock. A StepModel caches costs of layers, so
// one thread at a time may use it.
#include <memory>

#include "tutti/planning/schedules/timeline.h"
#include "tutti/planning/training/cluster.h"
#include "tutti/planning/training/parallel_plan.h"
#include "tutti/planning/training/training_runtime.h"
#include "tutti/planning/transformer_config.h"

namespace tutti::planning {

// Seconds of the busiest rank of the pipeline, and what the others make it wait for. Their sum is the step.
struct StepTime {
  double compute = 0;
  double recompute = 0;  // with the sums over tensor ranks that it repeats
  double tensor = 0;     // sums over tensor ranks that no computation hides
  double context = 0;    // keys and values of other context ranks, likewise
  double messages = 0;   // between stages
  double bubble = 0;     // waiting in the pipeline
  double averages = 0;   // averages of gradients and gathers of weights that no computation hides
  double optimizer = 0;
  double step() const { return compute + recompute + tensor + context + messages + bubble + averages + optimizer; }
};

class StepModel {
 public:
  // All nodes must have the same number of devices.
  StepModel(const TransformerConfig& config, const Cluster& cluster, const TrainingRuntime& runtime, int global_batch);
  ~StepModel();

  StepTime estimate(const ParallelPlan& plan) const;
  // Throws Exception if make_schedule() does.
  StepTime exact(const ParallelPlan& plan) const;
  double exact_step(const ParallelPlan& plan) const;  // exact().step(), in less time
  // At most the step of exact().
  double lower_bound(const ParallelPlan& plan) const;
  // estimate().step() and lower_bound() at once.
  struct Bounds {
    double estimate, lower;
  };
  Bounds bounds(const ParallelPlan& plan) const;
  // The layers of the ends with which the slowest stage of this pipeline is fastest.
  EndLayers balanced_ends(const ParallelPlan& plan) const;
  // The pipeline of exact().
  Timeline timeline(const ParallelPlan& plan) const;

  const TransformerConfig& config() const;
  const Cluster& cluster() const;
  const TrainingRuntime& runtime() const;
  int global_batch() const;

 private:
  struct Costs;
  std::unique_ptr<Costs> costs_;
};

}  // namespace tutti::planning
