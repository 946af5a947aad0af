#include "tutti/planning/schedules/schedule.h"

#include "tutti/base/error.h"

namespace tutti {
namespace {

struct Row {
  ScheduleKind kind;
  std::string_view name;
  std::vector<Action> (*actions)(const PipelineShape&, int rank);
};
constexpr Row kTable[] = {
    {ScheduleKind::kFillDrain, "fill-drain", fill_drain},
    {ScheduleKind::kOneForwardOneBackward, "1f1b", one_forward_one_backward},
    {ScheduleKind::kInterleaved, "interleaved", interleaved},
    {ScheduleKind::kZeroBubbleH1, "zb-h1", zero_bubble_h1},
    {ScheduleKind::kZeroBubbleV, "zb-v", zero_bubble_v},
};
const Row& row_of(ScheduleKind kind) { return kTable[int(kind)]; }

// What bounds the lists of all ranks together: a mistyped count shall be a sentence, not a machine without memory.
constexpr std::int64_t kMostActions = 1 << 24;

void check(ScheduleKind kind, const PipelineShape& shape) {
  const std::string name(row_of(kind).name);
  TUTTI_REQUIRE(shape.ranks >= 1, "schedule ", name, ": ", shape.ranks, " pipeline ranks, expected 1 or more");
  TUTTI_REQUIRE(shape.microbatches >= 1, "schedule ", name, ": ", shape.microbatches,
                " microbatches, expected 1 or more");
  TUTTI_REQUIRE(shape.chunks >= 1, "schedule ", name, ": ", shape.chunks, " chunks a rank, expected 1 or more");
  TUTTI_REQUIRE(std::int64_t(shape.ranks) * shape.chunks <= kMostActions &&
                    std::int64_t(shape.ranks) * shape.chunks * shape.microbatches <= kMostActions,
                "schedule ", name, ": ", shape.ranks, " ranks x ", shape.chunks, " chunks x ", shape.microbatches,
                " microbatches are more than the ", kMostActions, " that a schedule may have");
  switch (kind) {
    case ScheduleKind::kInterleaved:
      TUTTI_REQUIRE(shape.chunks >= 2, "schedule interleaved: 1 chunk a rank, expected 2 or more (1f1b has one)");
      TUTTI_REQUIRE(shape.microbatch_group == 0 || shape.microbatch_group >= shape.ranks,
                    "schedule interleaved: groups of ", shape.microbatch_group, " microbatches, expected at least as ",
                    "many as there are pipeline ranks (", shape.ranks, "): else each waits for the last rank");
      return;
    case ScheduleKind::kZeroBubbleV:
      TUTTI_REQUIRE(shape.chunks == 2, "schedule zb-v: ", shape.chunks, " chunks a rank, expected 2: a V has two arms");
      break;
    case ScheduleKind::kFillDrain:
    case ScheduleKind::kOneForwardOneBackward:
    case ScheduleKind::kZeroBubbleH1:
      TUTTI_REQUIRE(shape.chunks == 1, "schedule ", name, ": ", shape.chunks,
                    " chunks a rank, expected 1 (interleaved and zb-v take more)");
      break;
  }
  TUTTI_REQUIRE(shape.microbatch_group == 0, "schedule ", name, ": groups of ", shape.microbatch_group,
                " microbatches are for interleaved only");
}

}  // namespace

std::string_view name(ScheduleKind kind) { return row_of(kind).name; }

std::optional<ScheduleKind> schedule_kind(std::string_view name) {
  for (const Row& row : kTable)
    if (row.name == name) return row.kind;
  return {};
}

std::string to_string(const Action& action, int chunks) {
  constexpr char kLetters[] = {'F', 'B', 'I', 'W'};
  std::string text = kLetters[int(action.kind)] + std::to_string(action.microbatch);
  if (chunks <= 1) return text;
  if (chunks <= 26) return text + char('a' + action.chunk);
  return text + "." + std::to_string(action.chunk);
}

std::string to_string(std::span<const Action> actions, int chunks) {
  std::string text;
  for (const Action& action : actions) text += (text.empty() ? "" : " ") + to_string(action, chunks);
  return text;
}

int Schedule::stage_of(int rank, int chunk) const {
  if (kind == ScheduleKind::kZeroBubbleV && chunk == 1) return 2 * shape.ranks - 1 - rank;
  return chunk * shape.ranks + rank;
}
int Schedule::rank_of(int stage) const {
  const int place = stage % shape.ranks;
  return kind == ScheduleKind::kZeroBubbleV && stage >= shape.ranks ? shape.ranks - 1 - place : place;
}
int Schedule::chunk_of(int stage) const { return stage / shape.ranks; }

Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape) {
  check(kind, shape);
  Schedule schedule{.kind = kind, .shape = shape, .actions = {}};
  for (int rank = 0; rank < shape.ranks; ++rank) schedule.actions.push_back(row_of(kind).actions(shape, rank));
  if (shape.forward_only)
    for (auto& actions : schedule.actions)
      std::erase_if(actions, [](const Action& action) { return action.kind != ActionKind::kForward; });
  return schedule;
}

}  // namespace tutti
