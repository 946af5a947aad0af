#pragma once
// How a model that every rank has whole is trained on a cluster: data parallelism, what of the optimizer and of the
// gradients the ranks divide among them, and how a rank's samples are cut into passes. The answer is that of search.h;
// of a plan only data, micro_batch, zero and overlap_gradients count.
//
//   const ReplicaModel model = replica_model("mlp:784-4096-10").or_throw();
//   const auto plans = plan_replicas(model, cluster_preset("cpu", 2).or_throw(), 1024,
//                                    {.runtime = replica_runtime(1)}).or_throw();
#include <string>
#include <vector>

#include "tutti/planning/training/device_time.h"
#include "tutti/planning/training/replica_model.h"
#include "tutti/planning/training/search.h"

namespace tutti {

// train_image of Tutti, in f32. `state`: numbers that the optimizer keeps of each parameter.
TrainingRuntime replica_runtime(double state);

// kInvalidArgument for a cluster or a batch that cannot be planned for, kUsage for rules that such a model cannot have.
// Nodes may differ in their number of devices. Where nothing fits the answer is ok: `families` has what each would
// need.
Result<TrainingPlans> plan_replicas(const ReplicaModel& model, const Cluster& cluster, int global_batch,
                                    const PlanOptions& options);

// Time and memory of one plan, whether it fits or not. kInvalidArgument if it does not divide the devices or the batch,
// or is no plan of such a model.
Result<RankedPlan> evaluate(const ReplicaModel& model, const Cluster& cluster, int global_batch,
                            const TrainingRuntime& runtime, const ParallelPlan& plan);

namespace planning {

// Seconds of a layer for `samples` samples, while all devices of a node compute.
struct ReplicaSeconds {
  double forward = 0, backward = 0;
};
ReplicaSeconds seconds_of(const Cluster& cluster, const ReplicaLayer& layer, double samples, double element);
// Of all layers.
ReplicaSeconds seconds_of(const Cluster& cluster, const ReplicaModel& model, double samples, double element);
// The group of all ranks.
GroupPlace place_of_all(const Cluster& cluster);
// What is left of the sum of so many bytes of gradients over all ranks, behind a backward pass.
double exposed_sum(const Cluster& cluster, ClusterVerb verb, double bytes, double backward);

// Why train_image cannot run such a plan; empty: it can.
std::string refusal_of_replicas(const ParallelPlan& plan);
// Options of train_image.
std::vector<std::string> replica_options(const ReplicaModel& model, const ParallelPlan& plan, int global_batch);

}  // namespace planning
}  // namespace tutti
