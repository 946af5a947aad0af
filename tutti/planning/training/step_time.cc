// The costs of one layer and one microbatch come from layer_chain.h and device_time.h. A stage is the sum of its
// layers, the first one with the embedding, the last one with the head. A step is the pipeline of the stages, and then,
// on each rank, its averages and its update.
#include "tutti/planning/training/step_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "tutti/planning/training/device_time.h"
#include "tutti/planning/training/layer_chain.h"
#include "tutti/planning/training/memory.h"
#include "tutti/planning/training/node_layout.h"

namespace tutti::planning {
namespace {

constexpr double kSelectiveKernels = 5;

struct Seconds {
  double compute = 0, recompute = 0, tensor = 0, context = 0, messages = 0, averages = 0;
  double sum() const { return compute + recompute + tensor + context + messages + averages; }
  Seconds& add(const Seconds& other, double times = 1) {
    compute += times * other.compute;
    recompute += times * other.recompute;
    tensor += times * other.tensor;
    context += times * other.context;
    messages += times * other.messages;
    averages += times * other.averages;
    return *this;
  }
};

struct Passes {
  Seconds forward, input, weight;  // weight: the gradients of weights
  Passes& add(const Passes& other, double times = 1) {
    forward.add(other.forward, times);
    input.add(other.input, times);
    weight.add(other.weight, times);
    return *this;
  }
  double sum() const { return forward.sum() + input.sum() + weight.sum(); }
  Passes& scale(double factor) {
    for (Seconds* const pass : {&forward, &input, &weight}) pass->compute *= factor, pass->recompute *= factor;
    return *this;
  }
};

// What depends on tensor, context, micro_batch and sequence_parallel alone.
struct LayerCosts {
  Passes block, embedding, head;
  double full = 0, selective = 0;  // seconds that these recomputations of a block add to its backward
};

struct PlanCosts {
  Passes block, embedding, head;
  double again = 0;    // recomputation of a layer
  int recomputed = 0;  // layers of each chunk, if it has as many
  double message = 0;  // between two stages
  double passing = 0;  // of it: while a message passes, others wait
};

// Seconds of a rank for one microbatch.
struct Work {
  double forward = 0, input = 0, weight = 0;
  double sum() const { return forward + input + weight; }
};

struct Closed {
  double pipeline = 0;  // until the last rank has ended its actions
  double waiting = 0;   // of it: for messages that do not block
  double tail = 0;      // averages and update
  double bound = 0;     // of pipeline + tail
  int busiest = 0;
};

int stage_of(const ParallelPlan& plan, int rank, int chunk) {
  const bool turned = plan.schedule == ScheduleKind::kZeroBubbleV && chunk == 1;
  return chunk * plan.pipeline + (turned ? plan.pipeline - 1 - rank : rank);
}

int rank_of_stage(const ParallelPlan& plan, int stage) {
  const bool turned = plan.schedule == ScheduleKind::kZeroBubbleV && stage >= plan.pipeline;
  return turned ? 2 * plan.pipeline - 1 - stage : stage % plan.pipeline;
}

bool splits_backward(ScheduleKind kind) {
  return kind == ScheduleKind::kZeroBubbleH1 || kind == ScheduleKind::kZeroBubbleV;
}

}  // namespace

struct StepModel::Costs {
  TransformerConfig config;
  Cluster cluster;
  TrainingRuntime runtime;
  int global_batch;
  NodeLayout nodes;
  double slower = 1;  // factor of computations on the slowest device
  mutable std::map<std::uint64_t, LayerCosts> cache{};

  double exposed(double transfer, double computation) const { return exposed_time(cluster, transfer, computation); }
  double product(ProductKind kind, const ProductWork& work, int busy) const {
    return slower * work.share * work.times *
           product_time(cluster.device, kind, work.rows, work.outputs, work.inputs, work.batch, runtime.element, busy);
  }
  double elements(const ElementWork& work) const { return slower * element_time(cluster.device, work); }

  Passes passes(const LayerWork& work, const ParallelPlan& plan, LayerCosts* recomputations) const {
    const int busy = std::min(nodes.most(), plan.devices());
    const GroupPlace tensor = nodes.place(1, plan.tensor);
    const double forward_sum = collective_time(cluster.network, ClusterVerb::kAllReduce, tensor, work.tensor_bytes);
    Passes passes;
    double attention = 0, attention_backward = 0, hidden = 0;
    for (const ProductWork& one : work.products) {
      const double forward = product(ProductKind::kForward, one, busy);
      const double input = product(ProductKind::kInputGradient, one, busy);
      const double weight = product(ProductKind::kWeightGradient, one, busy);
      passes.forward.compute += forward;
      passes.input.compute += input + (one.has_weights ? 0 : weight);
      if (one.has_weights) passes.weight.compute += weight;
      if (one.again) passes.input.compute += forward;
      if (!one.has_weights) attention += forward, attention_backward += input + weight + (one.again ? forward : 0);
      if (one.hides_tensor_sum && runtime.hides_tensor_sums) hidden += forward_sum - exposed(forward_sum, weight);
    }
    passes.forward.compute += elements(work.forward);
    passes.input.compute += elements(work.backward);
    passes.forward.tensor = work.tensor_sums * forward_sum;
    passes.input.tensor = work.tensor_sums > 0 ? work.tensor_sums * forward_sum - hidden : 0;
    if (work.context_hops > 0) {  // each hop is hidden behind the attention of the part that came before
      const double hop = message_time(cluster.network, nodes.crossing(plan.tensor, plan.context), work.context_bytes);
      const double back =
          message_time(cluster.network, nodes.crossing(plan.tensor, plan.context), 2 * work.context_bytes);
      passes.forward.context = work.context_hops * exposed(hop, attention / plan.context);
      // The gradients of keys and values go one hop further, behind nothing.
      passes.input.context = work.context_hops * exposed(back, attention_backward / plan.context) + hop;
    }
    if (recomputations) {
      recomputations->full = passes.forward.sum();
      recomputations->selective = attention + elements({.bytes = work.score_bytes, .calls = kSelectiveKernels});
    }
    return passes;
  }

  const LayerCosts& layer(const ParallelPlan& plan) const {
    const std::uint64_t key =
        ((std::uint64_t(plan.tensor) << 21 | std::uint64_t(plan.context)) << 21 | std::uint64_t(plan.micro_batch)) * 4 +
        (plan.sequence_parallel ? 2 : 0) + (plan.devices() < nodes.most() ? 1 : 0);
    const auto found = cache.find(key);
    if (found != cache.end()) return found->second;
    const LayerChain chain = transformer_chain(config, plan, runtime, is_on_cores(cluster));
    LayerCosts costs;
    costs.block = passes(chain.block, plan, &costs);
    costs.embedding = passes(chain.embedding, plan, nullptr);
    costs.head = passes(chain.head, plan, nullptr);
    return cache.emplace(key, costs).first->second;
  }

  // The message between two stages, with what the receivers gather of it.
  void add_message(const ParallelPlan& plan, PlanCosts& costs) const {
    const double rows = double(config.sequence_length) / plan.context * plan.micro_batch;
    const double whole = rows * config.hidden * runtime.residual;
    const bool parts = plan.tensor > 1 && (plan.sequence_parallel || runtime.splits_messages);
    const int crossing = nodes.crossing(plan.tensor * plan.context * plan.data, plan.pipeline);
    costs.message = message_time(cluster.network, crossing, parts ? whole / plan.tensor : whole);
    costs.passing = costs.message - (crossing == 0 ? cluster.network.inside : cluster.network.between).latency;
    if (parts && !plan.sequence_parallel)
      costs.message += collective_time(cluster.network, ClusterVerb::kAllGather, nodes.place(1, plan.tensor), whole);
  }

  PlanCosts of(const ParallelPlan& plan) const {
    const LayerCosts& layer = this->layer(plan);
    PlanCosts costs{.block = layer.block, .embedding = layer.embedding, .head = layer.head};
    if (plan.recompute != Recomputation::kNone) {
      costs.again = plan.recompute == Recomputation::kFull ? layer.full : layer.selective;
      costs.recomputed = plan.recomputed_layers == 0 ? config.layers : plan.recomputed_layers;
    }
    if (plan.zero == ZeroStage::kWeights && plan.replicas() > 1) {
      // The next layer's weights are gathered, and the last one's gradients summed, while a layer computes.
      const GroupPlace place = nodes.place(plan.tensor, plan.replicas());
      const double parameters = parameters_of_layer(config, plan.tensor);
      const double gather = collective_time(cluster.network, ClusterVerb::kAllGather, place,
                                            parameters * runtime.parameters.weights, runtime.gather_share);
      const double sum = collective_time(cluster.network, ClusterVerb::kReduceScatter, place,
                                         parameters * runtime.sent_gradient, runtime.gather_share);
      const double backward = costs.block.input.sum() + costs.block.weight.sum();
      costs.block.forward.averages = exposed(gather, costs.block.forward.sum());
      costs.block.input.averages = exposed(gather + sum, backward);
      // The forward that is repeated hides more of them.
      if (costs.again > 0) costs.again += exposed(gather + sum, backward + costs.again) - costs.block.input.averages;
    }
    if (plan.pipeline > 1) add_message(plan, costs);
    return costs;
  }

  // A factor of what a pipeline rank computes: below 1 where the slowest device of the cluster is on another one.
  double faster(const ParallelPlan& plan, int pipeline_rank) const {
    const int width = plan.devices() / plan.pipeline;
    return 1 / nodes.slowest(pipeline_rank * width, width);
  }

  Passes stage(const ParallelPlan& plan, const PlanCosts& costs, int stage) const {
    const int layers = layers_of_stage(config.layers, plan.stages(), plan.ends, stage);
    Passes passes;
    passes.add(costs.block, layers);
    passes.input.recompute += std::min(layers, costs.recomputed) * costs.again;
    if (stage == 0) passes.add(costs.embedding);
    if (stage == plan.stages() - 1) passes.add(costs.head);
    passes.scale(faster(plan, rank_of_stage(plan, stage)));
    if (plan.pipeline > 1 && runtime.blocks_in_messages)
      passes.forward.messages = passes.input.messages = costs.message;
    return passes;
  }
  Passes rank(const ParallelPlan& plan, const PlanCosts& costs, int pipeline_rank) const {
    Passes sum;
    for (int chunk = 0; chunk < plan.chunks; ++chunk) sum.add(stage(plan, costs, stage_of(plan, pipeline_rank, chunk)));
    return sum;
  }
  double free_message(const PlanCosts& costs) const { return runtime.blocks_in_messages ? 0 : costs.message; }
  double free_passing(const PlanCosts& costs) const { return runtime.blocks_in_messages ? 0 : costs.passing; }

  double update(const ParallelPlan& plan, int pipeline_rank) const {
    const double share = plan.zero == ZeroStage::kNone ? 1 : plan.replicas();
    return faster(plan, pipeline_rank) *
           elements({.bytes = parameters_of_rank(config, plan, pipeline_rank) / share * runtime.optimizer_traffic,
                     .calls = kUpdateKernels});
  }
  // Averages of a rank that its last backward does not hide.
  double averages(const ParallelPlan& plan, const PlanCosts& costs, int pipeline_rank) const {
    const ClusterNetwork& network = cluster.network;
    double seconds = 0;
    if (plan.replicas() > 1 && plan.zero != ZeroStage::kWeights) {
      const GroupPlace place = nodes.place(plan.tensor, plan.replicas());
      const double parameters = parameters_of_rank(config, plan, pipeline_rank);
      const double bytes = parameters * runtime.sent_gradient;
      double sum = plan.zero == ZeroStage::kNone ? collective_time(network, ClusterVerb::kAllReduce, place, bytes)
                                                 : collective_time(network, ClusterVerb::kReduceScatter, place, bytes);
      if (plan.overlap_gradients) {
        const Passes passes = rank(plan, costs, pipeline_rank);
        const double behind = passes.input.sum() + passes.weight.sum();
        sum = std::max(exposed(sum, behind), sum * std::min(1.0, kLastBucket / bytes));
      }
      seconds += sum;
      if (plan.zero != ZeroStage::kNone)
        seconds += collective_time(network, ClusterVerb::kAllGather, place, parameters * runtime.parameters.weights);
    }
    // A tied embedding is on the first and the last stage, which sum their gradients.
    const bool is_end = pipeline_rank == 0 || pipeline_rank == plan.pipeline - 1;
    if (config.tied && plan.pipeline > 1 && plan.schedule != ScheduleKind::kZeroBubbleV && is_end) {
      const double bytes = double(config.vocabulary) * config.hidden / plan.tensor * runtime.sent_gradient;
      GroupPlace ends = nodes.place(plan.tensor * plan.replicas() * (plan.pipeline - 1), 2);
      ends.at_once = std::min(ends.at_once, plan.tensor * plan.replicas());  // other ranks of the node have none
      seconds += collective_time(network, ClusterVerb::kAllReduce, ends, bytes);
    }
    return seconds;
  }

  double tail(const ParallelPlan& plan, const PlanCosts& costs, int pipeline_rank) const {
    return averages(plan, costs, pipeline_rank) + update(plan, pipeline_rank);
  }

  // Of a pipeline of p ranks, in which rank r works w_r for each of m microbatches, the busiest one w. Every schedule
  // takes m w and what it takes to fill and to drain: the work of the other ranks (1F1B, fill-drain), divided by the
  // chunks (interleaved); of zero-bubble schedules what gradients of weights do not fill. The test compares it with the
  // simulated clock.
  Closed closed_form(const ParallelPlan& plan, const PlanCosts& costs) const {
    const double m = plan.microbatches(global_batch), p = plan.pipeline, message = free_message(costs);
    const Work block{costs.block.forward.sum(), costs.block.input.sum(), costs.block.weight.sum()};
    const Work embedding{costs.embedding.forward.sum(), costs.embedding.input.sum(), costs.embedding.weight.sum()};
    const Work head{costs.head.forward.sum(), costs.head.input.sum(), costs.head.weight.sum()};
    const double blocking = plan.pipeline > 1 && runtime.blocks_in_messages ? costs.message : 0;
    const int stages = plan.stages();
    const auto add_stage = [&](Work& work, int stage) {
      if (nodes.has_speeds()) {
        const Passes passes = this->stage(plan, costs, stage);
        work.forward += passes.forward.sum(), work.input += passes.input.sum(), work.weight += passes.weight.sum();
        return;
      }
      const int layers = layers_of_stage(config.layers, stages, plan.ends, stage);
      work.forward += layers * block.forward + blocking;
      work.input += layers * block.input + std::min(layers, costs.recomputed) * costs.again + blocking;
      work.weight += layers * block.weight;
      for (const Work* const end : {stage == 0 ? &embedding : nullptr, stage == stages - 1 ? &head : nullptr}) {
        if (!end) continue;
        work.forward += end->forward;
        work.input += end->input;
        work.weight += end->weight;
      }
    };
    Closed closed;
    const double first_tail = tail(plan, costs, 0);
    closed.tail = plan.pipeline > 1 ? std::max(first_tail, tail(plan, costs, plan.pipeline - 1)) : first_tail;
    // A rank cannot start before the first microbatch has passed the stages before its first one. Where backward is
    // whole, its last microbatch must pass them back after the rank has ended, and then comes what the first rank adds.
    double most = 0, sum = 0, unfilled = 0, before = 0, after = 0;
    for (int rank = 0; rank < plan.pipeline; ++rank) {
      Work first, work;
      add_stage(first, rank);
      work = first;
      for (int chunk = 1; chunk < plan.chunks; ++chunk) add_stage(work, stage_of(plan, rank, chunk));
      const double each = work.sum();
      if (each > most) most = each, closed.busiest = rank;
      sum += each;
      unfilled += std::max(0.0, work.forward + work.input - work.weight);
      closed.bound = std::max(closed.bound, before + m * each + (rank == 0 ? first_tail : 0));
      if (!splits_backward(plan.schedule))
        closed.bound = std::max(closed.bound, before + m * each + after + first_tail);
      before += first.forward + message;
      after += first.input + first.weight + message;
    }
    double fill = 0;
    switch (plan.schedule) {
      case ScheduleKind::kFillDrain:
        fill = sum - most;
        closed.waiting = 2 * (p - 1) * message;
        break;
      case ScheduleKind::kOneForwardOneBackward:
        fill = sum - most;
        closed.waiting = plan.pipeline > 1 ? 2 * (m + p - 2) * message : 0;
        break;
      case ScheduleKind::kInterleaved:
        fill = (sum - most) / plan.chunks;
        closed.waiting = 2 * (p - 1) * message;
        break;
      case ScheduleKind::kZeroBubbleH1:
        fill = unfilled * (p - 1) / p;
        closed.waiting = 2 * (m + p - 2) * message;
        break;
      case ScheduleKind::kZeroBubbleV:
        fill = (sum - most) / 6;
        closed.waiting = 2 * (p - 1) * message;
        break;
    }
    closed.pipeline = std::max(m * most + fill + closed.waiting, closed.bound - closed.tail);
    return closed;
  }

  Timeline simulate_pipeline(const ParallelPlan& plan, const PlanCosts& costs, bool with_messages = true) const {
    const Schedule schedule =
        make_schedule(plan.schedule,
                      {.ranks = plan.pipeline, .microbatches = plan.microbatches(global_batch), .chunks = plan.chunks});
    StageCosts stages{.forward = {}, .backward_input = {}, .backward_weight = {}};
    if (with_messages) stages.message = free_message(costs), stages.passing = free_passing(costs);
    for (int s = 0; s < plan.stages(); ++s) {
      const Passes passes = stage(plan, costs, s);
      stages.forward.push_back(passes.forward.sum());
      stages.backward_input.push_back(passes.input.sum());
      stages.backward_weight.push_back(passes.weight.sum());
    }
    return simulate(schedule, stages);
  }

  // `pipeline`: the time until the last rank has ended its actions; `waiting` of it: messages that do not block.
  StepTime parts(const ParallelPlan& plan, const PlanCosts& costs, int busiest, double pipeline, double waiting,
                 double step) const {
    const double m = plan.microbatches(global_batch);
    const Passes passes = rank(plan, costs, busiest);
    Seconds work;
    work.add(passes.forward, m).add(passes.input, m).add(passes.weight, m);
    StepTime time{.compute = work.compute,
                  .recompute = work.recompute,
                  .tensor = work.tensor,
                  .context = work.context,
                  .messages = work.messages + waiting};
    time.bubble = std::max(0.0, pipeline - work.sum() - waiting);
    time.optimizer = std::min(update(plan, busiest), std::max(0.0, step - pipeline));
    time.averages = work.averages + std::max(0.0, step - pipeline - time.optimizer);
    return time;
  }
};

StepModel::StepModel(const TransformerConfig& config, const Cluster& cluster, const TrainingRuntime& runtime,
                     int global_batch)
    : costs_(new Costs{config, cluster, runtime, global_batch, NodeLayout(cluster), slowness(cluster)}) {
  TUTTI_REQUIRE(!cluster.nodes.empty(), "planner: the cluster has no nodes");
}
StepModel::~StepModel() = default;

StepTime StepModel::estimate(const ParallelPlan& plan) const {
  const PlanCosts costs = costs_->of(plan);
  const Closed closed = costs_->closed_form(plan, costs);
  return costs_->parts(plan, costs, closed.busiest, closed.pipeline, closed.waiting, closed.pipeline + closed.tail);
}

StepModel::Bounds StepModel::bounds(const ParallelPlan& plan) const {
  const Closed closed = costs_->closed_form(plan, costs_->of(plan));
  return {closed.pipeline + closed.tail, closed.bound};
}

EndLayers StepModel::balanced_ends(const ParallelPlan& plan) const {
  const PlanCosts costs = costs_->of(plan);
  Passes layer = costs.block;
  layer.input.recompute += costs.again;
  const auto at = [&](int rank, const Passes& more) {
    const double factor = costs_->faster(plan, rank);
    return StageCost{Passes(layer).scale(factor).sum(), Passes(more).scale(factor).sum()};
  };
  const int first = 0, last = rank_of_stage(plan, plan.stages() - 1);
  int middle = rank_of_stage(plan, 1);  // the slowest rank that has a stage between these
  for (int stage = 2; stage < plan.stages() - 1; ++stage)
    if (const int rank = rank_of_stage(plan, stage); costs_->faster(plan, rank) > costs_->faster(plan, middle))
      middle = rank;
  return tutti::balanced_ends(config().layers, plan.stages(), at(first, costs.embedding), at(middle, {}),
                              at(last, costs.head));
}

double StepModel::lower_bound(const ParallelPlan& plan) const { return bounds(plan).lower; }

double StepModel::exact_step(const ParallelPlan& plan) const {
  const PlanCosts costs = costs_->of(plan);
  const Timeline timeline = costs_->simulate_pipeline(plan, costs);
  double step = 0;
  for (int rank = 0; rank < plan.pipeline; ++rank)
    step = std::max(step, timeline.ranks[std::size_t(rank)].back().end + costs_->tail(plan, costs, rank));
  return step;
}

StepTime StepModel::exact(const ParallelPlan& plan) const {
  const PlanCosts costs = costs_->of(plan);
  const Timeline timeline = costs_->simulate_pipeline(plan, costs);
  double pipeline = 0, step = 0;
  for (int rank = 0; rank < plan.pipeline; ++rank) {
    const double end = timeline.ranks[std::size_t(rank)].back().end;
    pipeline = std::max(pipeline, end);
    step = std::max(step, end + costs_->tail(plan, costs, rank));
  }
  double waiting = 0;
  if (costs_->free_message(costs) > 0 && plan.pipeline > 1)
    waiting = std::max(0.0, pipeline - costs_->simulate_pipeline(plan, costs, false).length());
  return costs_->parts(plan, costs, costs_->closed_form(plan, costs).busiest, pipeline, waiting, step);
}

Timeline StepModel::timeline(const ParallelPlan& plan) const {
  const PlanCosts costs = costs_->of(plan);
  return costs_->simulate_pipeline(plan, costs);
}

const TransformerConfig& StepModel::config() const { return costs_->config; }
const Cluster& StepModel::cluster() const { return costs_->cluster; }
const TrainingRuntime& StepModel::runtime() const { return costs_->runtime; }
int StepModel::global_batch() const { return costs_->global_batch; }

}  // namespace tutti::planning
