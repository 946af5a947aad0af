#include "tutti/parallel/pipeline/pipeline.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tutti/comm/collectives.h"
#include "tutti/metrics/gather_trace.h"
#include "tutti/parallel/pipeline/interpreter.h"
#include "tutti/tensor/live_bytes.h"

namespace tutti {
namespace {

// What all ranks must have alike: the shape in words of its own, and a digest of everything.
using Facts = std::array<std::int64_t, 9>;

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

// Into how many parts messages are split, and which of them is this rank's.
constexpr std::size_t kParts = 7, kPart = 8;

Facts facts_of(const Schedule& schedule, const MessageOptions& messages, std::uint64_t digest) {
  const PipelineShape& shape = schedule.shape;
  const Group& split = messages.split_over;
  return {std::int64_t(schedule.kind), shape.ranks,        shape.microbatches,   shape.chunks,
          shape.microbatch_group,      shape.forward_only, std::int64_t(digest), split ? split.size() : 1,
          split ? split.rank() : 0};
}

std::string words(const Facts& facts) {
  return fmt::format("{} of {} ranks, {} microbatches, {} chunks{}{}", name(ScheduleKind(facts[0])), facts[1], facts[2],
                     facts[3], facts[4] > 0 ? fmt::format(", groups of {}", facts[4]) : "",
                     facts[5] != 0 ? ", forwards only" : "");
}

std::string split_words(const Facts& facts) {
  if (facts[kParts] == 1) return "whole tensors";
  return fmt::format("part {} of {} of each tensor", facts[kPart], facts[kParts]);
}

// How a rank with such facts differs.
std::string difference(const Facts& theirs, const Facts& mine) {
  if (words(theirs) != words(mine)) return "runs " + words(theirs) + ", this rank " + words(mine);
  if (split_words(theirs) != split_words(mine))
    return "sends " + split_words(theirs) + ", this rank " + split_words(mine) + " (MessageOptions::split_over)";
  return "runs the same kind of schedule with other actions or other messages";
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
  if (group_.size() == 1) return;
  const Facts mine = facts_of(schedule, options_.messages, digest_of(schedule, options_.messages));
  std::vector<std::int64_t> all(mine.size() * std::size_t(group_.size()));
  all_gather(group_, std::span<const std::int64_t>(mine), std::span(all));
  for (int rank = 0; rank < group_.size(); ++rank) {
    Facts theirs;
    std::copy_n(all.begin() + std::ptrdiff_t(mine.size()) * rank, theirs.size(), theirs.begin());
    if (theirs == mine) continue;
    throw Exception(Error{.code = Code::kMismatch,
                          .detail = difference(theirs, mine),
                          .hint = "all ranks of a pipeline run one schedule, with one dtype and size of activations, "
                                  "split alike",
                          .group = group_.name(),
                          .rank = group_.rank(),
                          .operation = "Pipeline::run",
                          .peer = rank});
  }
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
  } catch (...) {
    if (group_.status().ok()) group_.abort(Error{.code = Code::kAborted, .detail = "this rank gave its step up"});
    throw;
  }
  if (options_.tell_losses) {
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
