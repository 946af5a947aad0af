#pragma once
// Runs a schedule (planning/schedules) with tensors: forwards and backwards of the chunks of this rank in its order,
// activations and gradients to and from the neighbouring stages meanwhile.
//
//   const Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 4, .microbatches = 8});
//   Pipeline pipeline(pp, {[&](int microbatch, const at::Tensor& input) { ... }}, {.messages = {.sizes = {32, 64}}});
//   StepResult step = pipeline.run(schedule);       // gradients are in the parameters' .grad
//   optimizer.step();
//
// A chunk's function gets the number of the microbatch and the output of the stage before, which is undefined on the
// first stage. It returns its output, or on the last stage the loss, a tensor of one element. It reads its own data
// (tokens, targets) by the number. It is called with GradMode on, or with GradMode off in a schedule that has only
// forwards.
//
// Of an output that was sent, its place in the graph is kept, not its memory. Some schedules split backward (zb-h1,
// zb-v). Layers that support WeightGradients (tensor/weight_gradients.h) then defer the gradients of their weights
// until the schedule runs them. All other layers compute them together with those of their input, which is correct, but
// fills no bubble.
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/pipeline/messages.h"
#include "tutti/planning/schedules/schedule.h"
#include "tutti/planning/schedules/timeline.h"

namespace tutti {

using Chunk = std::function<at::Tensor(int microbatch, const at::Tensor& input)>;

struct PipelineOptions {
  MessageOptions messages = {};
  // StepResult::losses on every rank, not on that of the last stage alone; a small broadcast a step.
  bool broadcast_losses = false;
  // Around the last microbatch of a step, in order: all that it adds to the gradients of a chunk's parameters comes
  // between the two. So a data-parallel reduction that waits for the last backward can overlap with it, and one that
  // does not overlap can begin after it, while other chunks work.
  std::function<void(int chunk)> before_last_backward = {}, after_last_backward = {};
  bool record_times = false;  // StepResult::times
  // StepResult::most_bytes. Counts every CPU tensor of the process (tensor/live_bytes.h), about 0.2 us each.
  bool count_bytes = false;
};

struct StepOptions {
  // The loss of microbatch i counts weights[i] in the gradients; empty: 1 / microbatches each, the mean. For one over
  // tokens: the number of tokens of the microbatch over that of the step, or 1 for losses that are sums.
  std::vector<double> weights = {};
  double scale = 1;  // of all gradients: a loss scaler's for f16
};

struct StepResult {
  // What the last stage returned for each microbatch, neither weighted nor scaled. Empty on other ranks, unless
  // PipelineOptions::broadcast_losses.
  std::vector<double> losses;
  // With record_times: when this rank's actions ran, without waits for messages, in seconds of this host's monotonic
  // clock. measured_timeline() makes a Timeline of those of all ranks.
  std::vector<TimedAction> times;
  int most_kept = 0;            // microbatches x chunks whose activations this rank had at once
  std::int64_t most_bytes = 0;  // with count_bytes: of these activations, inputs of the stages included
};

// One thread at a time. Failures throw Exception: what a message ran into, with its stage and microbatch; or what a
// chunk threw, which the other ranks get at once as well. Then the group is lost, and gradients are undefined.
class Pipeline {
 public:
  // `group`: the ranks of the pipeline, by stage. `chunks`: of this rank, as many as Schedule::shape.chunks.
  Pipeline(const Group& group, std::vector<Chunk> chunks, PipelineOptions options = {});
  ~Pipeline();

  // Every rank calls with the same schedule; each call compares them. Adds to the gradients that are there. With
  // shape.forward_only: no gradients (`step` is not used).
  StepResult run(const Schedule& schedule, const StepOptions& step = {});

  const PipelineOptions& options() const { return options_; }

 private:
  void compare(const Schedule& schedule) const;

  Group group_;
  std::vector<Chunk> chunks_;
  PipelineOptions options_;
  StageMessages messages_;
};

// What all ranks of the pipeline did in a step, from 0 on; on every rank. Collective, for the `times` of one step. The
// clocks of different hosts are compared first.
Timeline measured_timeline(const Group& group, const Schedule& schedule, const std::vector<TimedAction>& times);

}  // namespace tutti
