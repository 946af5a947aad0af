#include "tutti/planning/schedules/schedule.h"

#include <algorithm>

#include "tutti/base/error.h"

namespace tutti {
namespace {

// All forwards, then all backwards in the same order. Every rank keeps the activations of all microbatches. The bubble
// is that of 1F1B, (p-1)/m of the work.
std::vector<Action> fill_drain(const PipelineShape& shape, int) {
  std::vector<Action> actions;
  for (int i = 0; i < shape.microbatches; ++i) actions.push_back({ActionKind::kForward, i, 0});
  for (int i = 0; i < shape.microbatches; ++i) actions.push_back({ActionKind::kBackward, i, 0});
  return actions;
}

// Rank r first runs as many forwards as there are ranks after it, then alternates, then drains. So it never keeps the
// activations of more than p - r microbatches, however many there are.
std::vector<Action> one_forward_one_backward(const PipelineShape& shape, int rank) {
  const int total = shape.microbatches, warm_up = std::min(shape.ranks - rank - 1, total);
  std::vector<Action> actions;
  for (int i = 0; i < warm_up; ++i) actions.push_back({ActionKind::kForward, i, 0});
  for (int i = 0; i < total; ++i) {
    if (warm_up + i < total) actions.push_back({ActionKind::kForward, warm_up + i, 0});
    actions.push_back({ActionKind::kBackward, i, 0});
  }
  return actions;
}

// 1F1B over virtual stages. Microbatches pass in groups of N: a group passes through the rank's first chunk, then
// through the second, and so on, before the next group starts. This order of (microbatch, chunk) is the table. The k-th
// forward is its k-th line. The k-th backward is the same line with the chunks in reverse. With v chunks per rank the
// bubble is (p-1)/(m v) of the work, at the price of v times the messages and a little more memory.
//
// Megatron-LM rejects a number of microbatches whose remainder modulo N is between 1 and p - 1, because with its order
// the ranks would deadlock. Here the microbatches are then distributed as evenly as possible over the same number of
// groups, larger groups first. So any number works, and the bubble stays that of the formula.
std::vector<int> group_sizes(const PipelineShape& shape) {
  const int total = shape.microbatches, size = shape.microbatch_group > 0 ? shape.microbatch_group : shape.ranks;
  const int rest = total % size, whole = total / size;
  if (rest == 0) return std::vector<int>(std::size_t(whole), size);
  std::vector<int> sizes;
  if (rest >= shape.ranks) {  // the rest forms a group like the others
    sizes.assign(std::size_t(whole), size);
    sizes.push_back(rest);
    return sizes;
  }
  const int groups = std::max(whole, 1);
  for (int i = 0; i < groups; ++i) sizes.push_back(total / groups + (i < total % groups ? 1 : 0));
  return sizes;
}

std::vector<Action> interleaved(const PipelineShape& shape, int rank) {
  const int chunks = shape.chunks;
  const std::vector<int> groups = group_sizes(shape);
  std::vector<std::pair<int, int>> table;  // microbatch, chunk
  for (int first = 0; const int size : groups) {
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int i = first; i < first + size; ++i) table.emplace_back(i, chunk);
    first += size;
  }
  const int total = int(table.size());
  const int warm_up = std::min((shape.ranks - rank - 1) * 2 + (chunks - 1) * groups[0], total);
  std::vector<Action> actions;
  const auto forward = [&](int k) { actions.push_back({ActionKind::kForward, table[k].first, table[k].second}); };
  for (int k = 0; k < warm_up; ++k) forward(k);
  for (int k = 0; k < total; ++k) {
    if (warm_up + k < total) forward(warm_up + k);
    actions.push_back({ActionKind::kBackward, table[k].first, chunks - 1 - table[k].second});
  }
  return actions;
}

// 1F1B with each backward split in two: the gradient of the input, which the rank before waits for, and the gradient of
// the weights, which no rank waits for. Rank r delays the latter by r microbatches, so it fills the drain of the
// pipeline. No rank keeps more than rank 0 of 1F1B does, p microbatches. If a forward and the two halves take equal
// times, the bubble is a third of that of 1F1B.
std::vector<Action> zero_bubble_h1(const PipelineShape& shape, int rank) {
  const int total = shape.microbatches, warm_up = std::min(shape.ranks - rank - 1, total);
  std::vector<Action> actions;
  for (int i = 0; i < warm_up; ++i) actions.push_back({ActionKind::kForward, i, 0});
  for (int i = 0; i < total; ++i) {
    if (warm_up + i < total) actions.push_back({ActionKind::kForward, warm_up + i, 0});
    actions.push_back({ActionKind::kBackwardInput, i, 0});
    if (i >= rank) actions.push_back({ActionKind::kBackwardWeight, i - rank, 0});
  }
  for (int i = std::max(total - rank, 0); i < total; ++i) actions.push_back({ActionKind::kBackwardWeight, i, 0});
  return actions;
}

// Two chunks per rank, arranged as a V: the first half of the model runs down the ranks, the second half runs back up.
// So rank 0 has the first and the last stage, and the backward of a microbatch starts on the rank where its forward
// ended. Backwards are split in two as in ZB-H1. With 2p - 1 microbatches or more, no rank waits between its first and
// its last action, if forward, gradient of the input and gradient of the weights take equal times. Every rank keeps 2p
// chunks (each half the layers of a 1F1B stage), as much as rank 0 of 1F1B.
//
// The list is built for at least 2p - 1 microbatches; actions of microbatches that do not exist are omitted. InOrder
// tracks the next microbatch of each kind of action in each chunk, because microbatches run in order.
class InOrder {
 public:
  explicit InOrder(int microbatches) : microbatches_(microbatches) {}
  void add(ActionKind kind, int chunk, int times = 1) {
    for (int i = 0; i < times; ++i) {
      const int microbatch = done_[int(kind)][chunk]++;
      if (microbatch < microbatches_) actions_.push_back({kind, microbatch, chunk});
    }
  }
  void add_backward(int chunk) {
    add(ActionKind::kBackwardInput, chunk);
    add(ActionKind::kBackwardWeight, chunk);
  }
  int done(ActionKind kind, int chunk) const { return done_[int(kind)][chunk]; }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  int microbatches_, done_[4][2] = {};
  std::vector<Action> actions_;
};

std::vector<Action> zero_bubble_v(const PipelineShape& shape, int rank) {
  using enum ActionKind;
  const int ranks = shape.ranks, total = std::max(shape.microbatches, 2 * ranks - 1);
  InOrder order(shape.microbatches);
  // Forwards in the first arm, until the first microbatch has come back to this rank.
  order.add(kForward, 0, 2 * (ranks - rank) - 1);
  for (int i = 0; i < rank; ++i) order.add(kForward, 1), order.add(kForward, 0);
  for (int i = 0; i < ranks - rank; ++i) order.add(kForward, 1), order.add_backward(1);
  // Steady state: the arms alternate until all forwards are done.
  while (order.done(kForward, 1) < order.done(kForward, 0) || order.done(kForward, 0) < total) {
    if (order.done(kForward, 0) < total) order.add(kForward, 0);
    order.add_backward(0);
    order.add(kForward, 1), order.add_backward(1);
  }
  // Drain: actions that other ranks wait for come first.
  for (int i = 0; i < rank; ++i) order.add(kBackwardInput, 0), order.add(kBackwardInput, 1);
  for (int i = 0; i < ranks - rank; ++i) order.add_backward(0);
  for (const int chunk : {1, 0}) order.add(kBackwardWeight, chunk, total - order.done(kBackwardWeight, chunk));
  return order.take();
}

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

// Limits the total length of the lists, so that a mistyped count gives an error message instead of exhausting memory.
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
