#include "tutti/parallel/pipeline/pipeline.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>

#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/metrics/gather_trace.h"
#include "tutti/parallel/pipeline/interpreter.h"
#include "tutti/tensor/live_bytes.h"

namespace tutti {
namespace {

std::uint64_t digest_of(const Schedule& schedule, const MessageOptions& messages) {
  std::uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](std::uint64_t value) { digest = (digest ^ value) * 0x100000001b3u; };
  for (const auto& actions : schedule.actions) {
    add(actions.size());
    for (const Action& action : actions)
      add(std::uint64_t(action.kind) | std::uint64_t(action.chunk) << 8 | std::uint64_t(action.microbatch) << 32);
  }
  add(std::uint64_t(messages.dtype));
  for (const std::int64_t size : messages.sizes) add(std::uint64_t(size));
  if (messages.split_over)
    add(std::uint64_t(messages.split_over.size())), add(std::uint64_t(messages.split_over.rank()));
  return digest;
}

// What all ranks of a pipeline must have in common.
std::vector<NamedValue> step_values(const Schedule& schedule, const MessageOptions& messages) {
  const PipelineShape& shape = schedule.shape;
  const Group& split = messages.split_over;
  return {{"the schedule",
           fmt::format("{} of {} ranks, {} microbatches, {} chunks{}{}", name(schedule.kind), shape.ranks,
                       shape.microbatches, shape.chunks,
                       shape.microbatch_group > 0 ? fmt::format(", groups of {}", shape.microbatch_group) : "",
                       shape.forward_only ? ", forwards only" : "")},
          {"what is sent (MessageOptions::split_over)",
           split && split.size() > 1 ? fmt::format("part {} of {} of each tensor", split.rank(), split.size())
                                     : "whole tensors"},
          {"the digest of actions, dtype and sizes", fmt::format("{:016x}", digest_of(schedule, messages))}};
}

void check(const Schedule& schedule, const Group& group, std::size_t chunks, const StepOptions& step) {
  const PipelineShape& shape = schedule.shape;
  TUTTI_REQUIRE(shape.ranks == group.size(), "pipeline: a schedule of ", shape.ranks, " ranks on group ", group.name(),
                ", which has ", group.size());
  TUTTI_REQUIRE(std::size_t(shape.chunks) == chunks, "pipeline: a schedule of ", shape.chunks,
                " chunks a rank, this rank has ", chunks);
  TUTTI_REQUIRE(step.weights.empty() || step.weights.size() == std::size_t(shape.microbatches),
                "pipeline: ", step.weights.size(), " weights for ", shape.microbatches, " microbatches");
}

}  // namespace

Pipeline::Pipeline(const Group& group, std::vector<Chunk> chunks, PipelineOptions options)
    : group_(group), chunks_(std::move(chunks)), options_(std::move(options)), messages_(group_, options_.messages) {
  TUTTI_REQUIRE(!chunks_.empty(), "pipeline: this rank has no chunk");
  TUTTI_REQUIRE(std::all_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) { return chunk != nullptr; }),
                "pipeline: a chunk without a function");
  if (options_.count_bytes) count_live_bytes();
}

Pipeline::~Pipeline() = default;

// In every step: a rank cannot know by itself that another one has changed its schedule.
void Pipeline::compare(const Schedule& schedule) const {
  agree_on(group_, "Pipeline::run", step_values(schedule, options_.messages),
           "all ranks of a pipeline run one schedule, with one dtype and size of activations, split alike")
      .or_throw();
}

StepResult Pipeline::run(const Schedule& schedule, const StepOptions& step) {
  check(schedule, group_, chunks_.size(), step);
  compare(schedule);
  StepResult result;
  try {
    result = Interpreter(schedule, group_.rank(), chunks_, options_, step, messages_).run();
  } catch (const Exception& error) {
    // The others wait for what this rank will not send.
    if (group_.status().ok()) group_.abort(error.error());
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what(), line = text.substr(0, text.find('\n'));
    if (group_.status().ok())
      group_.abort(Error{.code = Code::kAborted, .detail = "this rank gave its step up: " + line});
    throw;
  } catch (...) {
    if (group_.status().ok()) group_.abort(Error{.code = Code::kAborted, .detail = "this rank gave its step up"});
    throw;
  }
  if (options_.broadcast_losses) {
    result.losses.resize(std::size_t(schedule.shape.microbatches));
    broadcast(group_, std::span(result.losses), schedule.rank_of(schedule.shape.stages() - 1));
  }
  return result;
}

Timeline measured_timeline(const Group& group, const Schedule& schedule, const std::vector<TimedAction>& times) {
  const auto& actions = schedule.actions[std::size_t(group.rank())];
  TUTTI_REQUIRE(times.size() == actions.size(), "measured_timeline: times of ", times.size(),
                " actions, the schedule has ", actions.size(), " (PipelineOptions::record_times)");
  const double offset = to_seconds(compare_clocks(group).clock_offset);
  std::vector<double> mine;
  for (const TimedAction& timed : times) mine.insert(mine.end(), {timed.begin + offset, timed.end + offset});
  std::vector<std::size_t> splits;
  std::size_t total = 0;
  for (const auto& list : schedule.actions) splits.push_back(2 * list.size()), total += splits.back();
  std::vector<double> all(total);
  all_gather_v(group, std::span<const double>(mine), std::span(all), splits);

  const double origin = all.empty() ? 0 : *std::min_element(all.begin(), all.end());
  Timeline timeline{.chunks = schedule.shape.chunks};
  const double* next = all.data();
  for (const auto& list : schedule.actions) {
    auto& row = timeline.ranks.emplace_back();
    for (const Action& action : list) {
      row.push_back({action, next[0] - origin, next[1] - origin});
      next += 2;
    }
  }
  return timeline;
}

}  // namespace tutti
