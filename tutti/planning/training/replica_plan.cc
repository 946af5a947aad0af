// There are few plans: three ways to shard, averages during backward or after it, and the divisors of a rank's samples.
// All are timed in closed form.
#include "tutti/planning/training/replica_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace tutti {
namespace planning {
namespace {

constexpr double kForwardKernels = 2, kBackwardKernels = 4;  // of a layer, besides its products

double stream(const Cluster& cluster, double bytes, double calls) {
  return slowness(cluster) * element_time(cluster.device, {.bytes = bytes, .calls = calls});
}

int most_devices(const Cluster& cluster) {
  int most = 1;
  for (const ClusterNodes& nodes : cluster.nodes) most = std::max(most, nodes.devices);
  return most;
}

StepTime time_of(const ReplicaModel& model, const Cluster& cluster, int global_batch, const TrainingRuntime& runtime,
                 const ParallelPlan& plan) {
  const ReplicaSeconds pass = seconds_of(cluster, model, plan.micro_batch, runtime.element);
  const double passes = plan.microbatches(global_batch), parameters = model.parameters();
  StepTime time{.compute = passes * (pass.forward + pass.backward)};
  if (plan.data > 1) {
    const bool sharded = plan.zero != ZeroStage::kNone;
    time.averages = exposed_sum(cluster, sharded ? ClusterVerb::kReduceScatter : ClusterVerb::kAllReduce,
                                parameters * runtime.sent_gradient, plan.overlap_gradients ? pass.backward : 0);
    if (sharded)
      time.averages += collective_time(cluster.network, ClusterVerb::kAllGather, place_of_all(cluster),
                                       parameters * runtime.parameters.weights);
  }
  time.optimizer =
      stream(cluster, parameters / (plan.zero == ZeroStage::kNone ? 1 : plan.data) * runtime.optimizer_traffic,
             kUpdateKernels);
  return time;
}

RankMemory memory_of(const ReplicaModel& model, int global_batch, const TrainingRuntime& runtime,
                     const ParallelPlan& plan) {
  const double parameters = model.parameters();
  double kept = 0, widest = 0;
  for (const ReplicaLayer& layer : model.layers) {
    kept += layer.kept;
    widest = std::max(widest, std::max(layer.rows * layer.outputs, layer.kept));
  }
  RankMemory memory{.weights = parameters * runtime.parameters.weights,
                    .gradients = parameters * runtime.parameters.gradients,
                    .optimizer = parameters * runtime.parameters.optimizer};
  if (plan.zero != ZeroStage::kNone) memory.optimizer /= plan.data;
  // Passes that are added up keep whole gradients.
  if (plan.zero == ZeroStage::kGradients && plan.microbatches(global_batch) == 1) memory.gradients /= plan.data;
  memory.activations = kept * plan.micro_batch * runtime.element;
  memory.working = 2 * widest * plan.micro_batch * runtime.element;        // gradients of a layer's output and input
  if (plan.data > 1) memory.buffers = parameters * runtime.sent_gradient;  // buckets
  return memory;
}

RankedPlan ranked(const ReplicaModel& model, const Cluster& cluster, int global_batch, const TrainingRuntime& runtime,
                  const ParallelPlan& plan) {
  return {.plan = plan,
          .time = time_of(model, cluster, global_batch, runtime, plan),
          .memory = memory_of(model, global_batch, runtime, plan)};
}

std::string family_of(const ParallelPlan& plan) {
  switch (plan.zero) {
    case ZeroStage::kNone:
      return "data only";
    case ZeroStage::kOptimizer:
      return "sharded optimizer";
    case ZeroStage::kGradients:
      return "sharded gradients";
    case ZeroStage::kWeights:
      break;
  }
  return "fully sharded";
}

Status check_rules(const PlanRules& rules) {
  TUTTI_TRY(check(rules));
  for (const auto& [option, parts] : {std::pair("--fix", &rules.fix), {"--allow", &rules.allow}})
    for (const std::string& part : *parts) {
      const std::string key = part.substr(0, part.find('='));
      if (key != "dp" && key != "mbs" && key != "zero" && key != "overlap")
        return Error{
            .code = Code::kUsage,
            .detail = fmt::format("{} {}: every rank has the whole model, so a plan has no {}", option, part, key),
            .hint = "known: dp, mbs, zero, overlap"};
    }
  return {};
}

Status check_batch(const Cluster& cluster, int global_batch) {
  TUTTI_TRY(check(cluster));
  const int ranks = cluster.devices();
  if (global_batch < 1)
    return invalid_argument(fmt::format("a global batch of {} samples, expected 1 or more", global_batch));
  if (global_batch % ranks != 0)
    return invalid_argument(
        fmt::format("a global batch of {} cannot be divided among {} ranks, each of which takes as many samples",
                    global_batch, ranks),
        fmt::format("a batch of {} or {}", std::max(1, global_batch / ranks) * ranks,
                    (global_batch / ranks + 1) * ranks));
  return {};
}

// From the fastest on, each plan that needs clearly less memory than all before it.
std::vector<RankedPlan> front_of(const std::vector<RankedPlan>& by_time) {
  constexpr double kClearly = 0.9, kSlowest = 2;
  std::vector<RankedPlan> front;
  double least = std::numeric_limits<double>::infinity();
  for (const RankedPlan& plan : by_time) {
    if (plan.time.step() > kSlowest * by_time[0].time.step()) break;
    if (plan.memory.total() >= kClearly * least) continue;
    least = plan.memory.total();
    front.push_back(plan);
  }
  return front;
}

}  // namespace

ReplicaSeconds seconds_of(const Cluster& cluster, const ReplicaLayer& layer, double samples, double element) {
  const double bytes = layer.streamed * samples * element;
  ReplicaSeconds seconds{stream(cluster, bytes, kForwardKernels), stream(cluster, bytes, kBackwardKernels)};
  if (layer.outputs == 0) return seconds;
  const double slower = slowness(cluster);
  const int busy = most_devices(cluster);
  const auto product = [&](ProductKind kind) {
    return slower *
           product_time(cluster.device, kind, layer.rows * samples, layer.outputs, layer.inputs, 1, element, busy);
  };
  seconds.forward += product(ProductKind::kForward);
  seconds.backward += product(ProductKind::kWeightGradient);
  if (layer.has_input_gradient) seconds.backward += product(ProductKind::kInputGradient);
  return seconds;
}

ReplicaSeconds seconds_of(const Cluster& cluster, const ReplicaModel& model, double samples, double element) {
  ReplicaSeconds sum;
  for (const ReplicaLayer& layer : model.layers) {
    const ReplicaSeconds seconds = seconds_of(cluster, layer, samples, element);
    sum.forward += seconds.forward;
    sum.backward += seconds.backward;
  }
  return sum;
}

GroupPlace place_of_all(const Cluster& cluster) { return NodeLayout(cluster).place(1, cluster.devices()); }

double exposed_sum(const Cluster& cluster, ClusterVerb verb, double bytes, double backward) {
  if (bytes == 0) return 0;
  const double sum = collective_time(cluster.network, verb, place_of_all(cluster), bytes);
  return std::max(exposed_time(cluster, sum, backward), sum * std::min(1.0, kLastBucket / bytes));
}

std::string refusal_of_replicas(const ParallelPlan& plan) {
  if (plan.tensor > 1 || plan.context > 1 || plan.pipeline > 1 || plan.recompute != Recomputation::kNone)
    return "train_image has data parallelism only";
  if (plan.zero == ZeroStage::kWeights) return "train_image shards no weights";
  if (plan.zero == ZeroStage::kOptimizer && plan.overlap_gradients)
    return "a sharded optimizer of stage 1 averages gradients after the backward pass";
  if (plan.zero == ZeroStage::kGradients && !plan.overlap_gradients)
    return "stage 2 averages gradients during the backward pass";
  return {};
}

std::vector<std::string> replica_options(const ReplicaModel& model, const ParallelPlan& plan, int global_batch) {
  std::vector<std::string> options = {"--model", model.name, "--batch-size", std::to_string(plan.micro_batch)};
  const auto add = [&](const char* name, const std::string& value) { options.insert(options.end(), {name, value}); };
  if (const int passes = plan.microbatches(global_batch); passes > 1) add("--accumulate", std::to_string(passes));
  if (plan.data == 1) return options;
  add("--sharded", plan.zero == ZeroStage::kNone ? "off" : "on");
  if (plan.zero == ZeroStage::kGradients) add("--stage", "2");
  if (plan.zero == ZeroStage::kNone) add("--overlap", plan.overlap_gradients ? "on" : "off");
  return options;
}

}  // namespace planning

TrainingRuntime replica_runtime(double state) {
  TrainingRuntime runtime = tutti_runtime(Precision::kF32);
  runtime.parameters = {.weights = 4, .gradients = 4, .optimizer = 4 * state};
  runtime.optimizer_traffic = 4 * (3 + 2 * state);  // weights and state are read and written, gradients read
  return runtime;
}

Result<TrainingPlans> plan_replicas(const ReplicaModel& model, const Cluster& cluster, int global_batch,
                                    const PlanOptions& options) {
  using namespace planning;
  TUTTI_TRY(check_batch(cluster, global_batch));
  TUTTI_TRY(check_rules(options.rules));
  const PlanFilter filter(options.rules);
  const ParallelPlan& fixed = filter.fixed();
  TrainingPlans found;
  found.limit = options.memory > 0 ? options.memory : usable_memory(cluster);
  found.is_proven = true;
  std::vector<RankedPlan> fitting;
  std::map<ZeroStage, PlanFamily> families;
  const int ranks = cluster.devices();
  const bool has_ranks = filter.takes("dp", ranks, fixed.data, 1);
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights}) {
    if (!has_ranks || (ranks == 1 && zero != ZeroStage::kNone)) continue;
    if (!filter.takes("zero", zero, fixed.zero, ZeroStage::kNone)) continue;
    for (const bool overlap : {false, true}) {
      if (ranks == 1 && overlap) continue;
      // Stage 2 has no way without it.
      const bool plain = zero == ZeroStage::kGradients && !filter.is_fixed("overlap");
      if (!filter.takes("overlap", overlap, fixed.overlap_gradients, plain)) continue;
      for (const int samples : divisors(global_batch / ranks)) {
        if (filter.is_fixed("mbs") && samples != fixed.micro_batch) continue;
        const ParallelPlan plan{.data = ranks, .micro_batch = samples, .zero = zero, .overlap_gradients = overlap};
        if (const std::string refusal = refusal_of_replicas(plan); !refusal.empty()) {
          ++found.refusals[refusal];
          continue;
        }
        ++found.compared;
        const RankedPlan made = ranked(model, cluster, global_batch, options.runtime, plan);
        const bool fits = made.memory.total() <= found.limit;
        if (fits)
          fitting.push_back(made);
        else
          ++found.refusals["more memory than a device has"];
        PlanFamily& family = families[zero];
        const auto order = [](const RankedPlan& one, bool of_time) {
          return of_time ? one.time.step() : one.memory.total();
        };
        if (family.plans++ == 0 || (fits && !family.fits) ||
            (fits == family.fits && order(made, fits) < order(family.best, fits)))
          family.best = made;
        family.fits |= fits;
        family.name = family_of(plan);
      }
    }
  }
  found.fitting = std::int64_t(fitting.size());
  const auto by_time = [](const RankedPlan& one, const RankedPlan& other) {
    return std::tuple(one.time.step(), axes_of(one.plan), one.plan) <
           std::tuple(other.time.step(), axes_of(other.plan), other.plan);
  };
  std::sort(fitting.begin(), fitting.end(), by_time);
  if (!fitting.empty()) found.front = front_of(fitting);
  if (options.goal == PlanGoal::kMemory)
    std::stable_sort(fitting.begin(), fitting.end(), [](const RankedPlan& one, const RankedPlan& other) {
      return one.memory.total() < other.memory.total();
    });
  found.best.assign(fitting.begin(), fitting.begin() + std::min<std::ptrdiff_t>(options.best, found.fitting));
  for (const auto& [zero, family] : families) found.families.push_back(family);
  std::stable_sort(found.families.begin(), found.families.end(), [](const PlanFamily& one, const PlanFamily& other) {
    const auto order = [](const PlanFamily& family) {
      return std::pair(!family.fits, family.fits ? family.best.time.step() : family.best.memory.total());
    };
    return order(one) < order(other);
  });
  return found;
}

Result<RankedPlan> evaluate(const ReplicaModel& model, const Cluster& cluster, int global_batch,
                            const TrainingRuntime& runtime, const ParallelPlan& plan) {
  TUTTI_TRY(planning::check_batch(cluster, global_batch));
  if (plan.tensor > 1 || plan.context > 1 || plan.pipeline > 1)
    return invalid_argument(fmt::format("plan {}: every rank has the whole model", to_string(plan)),
                            "dp, mbs, zero and overlap");
  if (plan.data != cluster.devices())
    return invalid_argument(
        fmt::format("plan {} is for {} devices, and there are {}", to_string(plan), plan.data, cluster.devices()),
        fmt::format("dp={}", cluster.devices()));
  if (const std::int64_t unit = plan.batch_unit(); global_batch % unit != 0)
    return invalid_argument(
        fmt::format("plan {} takes samples in multiples of {} (dp x mbs), and the global batch is {}", to_string(plan),
                    unit, global_batch));
  return planning::ranked(model, cluster, global_batch, runtime, plan);
}

}  // namespace tutti
