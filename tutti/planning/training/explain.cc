#include "tutti/planning/training/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tutti/base/text.h"
#include "tutti/planning/training/node_layout.h"

namespace tutti::planning {
namespace {

std::string cause_of_tensor_sums(int tensor, const NodeLayout& nodes) {
  if (nodes.place(1, tensor).is_inside()) return "each rank has fewer rows or columns to hide them behind";
  return tensor > nodes.least() ? "they cross nodes, for tp is more than the devices of a node"
                                : "they cross nodes, for tp does not divide the devices of each node";
}

// What makes a part of a step long.
std::string cause_of(const std::string& part, const ParallelPlan& best, const ParallelPlan& plan, int global_batch,
                     const Cluster& cluster) {
  if (part == "tensor sums") return cause_of_tensor_sums(plan.tensor, NodeLayout(cluster));
  if (part == "averages") {
    if (best.overlap_gradients && !plan.overlap_gradients) return "they begin when the backward pass has ended";
    if (plan.zero == ZeroStage::kWeights) return "weights are gathered for each microbatch";
    return "each device averages the gradients of more parameters";
  }
  if (part == "bubble")
    return fmt::format("{} microbatches pass {} stages", plan.microbatches(global_batch), plan.stages());
  if (part == "recompute")
    return best.recompute == plan.recompute ? "the forward that it repeats takes longer" : "fewer activations are kept";
  if (part == "compute") return "its products of matrices are smaller";
  if (part == "context hops") return "keys and values take longer than the attention that hides them";
  if (part == "messages") return fmt::format("between {} stages", plan.stages());
  return "each device updates more parameters";
}

std::string help_for(const std::string& kind, const ParallelPlan& plan) {
  if (kind == "activations" || kind == "working") {
    std::vector<std::string> ways;
    if (plan.recompute != Recomputation::kFull || plan.recomputed_layers > 0) ways.emplace_back("recomputation");
    if (plan.micro_batch > 1) ways.emplace_back("smaller microbatches");
    if (!plan.sequence_parallel) ways.emplace_back("sequence parallelism");
    return ways.empty() ? "more tensor ranks" : join(ways, " or ");
  }
  if (kind == "head") return plan.micro_batch > 1 ? "smaller microbatches" : "more tensor ranks";
  if (kind == "optimizer" && plan.zero == ZeroStage::kNone && plan.replicas() > 1)
    return "a sharded optimizer (zero=1)";
  return "more tensor or pipeline ranks, or more devices";
}

}  // namespace

std::vector<std::pair<const char*, double>> parts_of(const StepTime& time) {
  return {{"compute", time.compute},      {"recompute", time.recompute}, {"tensor sums", time.tensor},
          {"context hops", time.context}, {"messages", time.messages},   {"bubble", time.bubble},
          {"averages", time.averages},    {"optimizer", time.optimizer}};
}

std::vector<std::pair<const char*, double>> parts_of(const RankMemory& memory) {
  return {{"weights", memory.weights},         {"gradients", memory.gradients}, {"optimizer", memory.optimizer},
          {"activations", memory.activations}, {"head", memory.head},           {"working", memory.working},
          {"buffers", memory.buffers}};
}

std::string why_slower(const RankedPlan& best, const RankedPlan& other, int global_batch, const Cluster& cluster) {
  const double more = other.time.step() - best.time.step();
  const auto ours = parts_of(best.time), theirs = parts_of(other.time);
  std::size_t worst = 0;
  for (std::size_t i = 1; i < ours.size(); ++i)
    if (theirs[i].second - ours[i].second > theirs[worst].second - ours[worst].second) worst = i;
  if (std::abs(more) < 0.002 * best.time.step()) return "as fast: within 0.2 %";
  const double part = theirs[worst].second - ours[worst].second;
  return fmt::format("{:+.1f} %, {} {}: {} more in {}: {}", 100 * more / best.time.step(), seconds_text(std::abs(more)),
                     more < 0 ? "less" : "more", seconds_text(std::max(part, 0.0)), theirs[worst].first,
                     cause_of(theirs[worst].first, best.plan, other.plan, global_batch, cluster));
}

std::string why_not_fit(const RankedPlan& plan, double limit) {
  const auto kinds = parts_of(plan.memory);
  const auto most =
      *std::max_element(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto words = [](double bytes) { return bytes_text(std::uint64_t(bytes)); };
  return fmt::format("needs {} of {}, {} of them {}; {} would help", words(plan.memory.total()), words(limit),
                     words(most.second), most.first, help_for(most.first, plan.plan));
}

std::vector<std::string> program_options(const ParallelPlan& plan, int global_batch) {
  std::vector<std::string> options = {"--micro-batch-size", std::to_string(plan.micro_batch), "--global-batch-size",
                                      std::to_string(global_batch)};
  const auto add = [&](bool is_used, const char* name, const std::string& value = {}) {
    if (!is_used) return;
    options.emplace_back(name);
    if (!value.empty()) options.push_back(value);
  };
  add(plan.tensor > 1, "--tensor-model-parallel-size", std::to_string(plan.tensor));
  add(plan.sequence_parallel, "--sequence-parallel");
  add(plan.context > 1, "--context-parallel-size", std::to_string(plan.context));
  add(plan.pipeline > 1, "--pipeline-model-parallel-size", std::to_string(plan.pipeline));
  const bool is_named =
      plan.schedule != ScheduleKind::kOneForwardOneBackward && plan.schedule != ScheduleKind::kInterleaved;
  add(is_named, "--pipeline-schedule", std::string(name(plan.schedule)));
  add(plan.schedule == ScheduleKind::kInterleaved, "--num-virtual-stages-per-pipeline-rank",
      std::to_string(plan.chunks));
  const EndLayers& ends = plan.ends;
  add(ends.first.has_value(), "--decoder-first-pipeline-num-layers", std::to_string(ends.first.value_or(0)));
  add(ends.last.has_value(), "--decoder-last-pipeline-num-layers", std::to_string(ends.last.value_or(0)));
  add(plan.zero == ZeroStage::kOptimizer, "--use-distributed-optimizer");
  add(plan.zero == ZeroStage::kWeights, "--fsdp");
  add(plan.overlap_gradients, "--overlap-grad-reduce");
  add(plan.recompute == Recomputation::kSelective, "--recompute-granularity", "selective");
  if (plan.recompute == Recomputation::kFull) {
    const int layers = plan.recomputed_layers;
    add(true, "--recompute-granularity", "full");
    add(true, "--recompute-method", layers > 0 ? "block" : "uniform");
    add(true, "--recompute-num-layers", std::to_string(std::max(layers, 1)));
  }
  return options;
}

}  // namespace tutti::planning
