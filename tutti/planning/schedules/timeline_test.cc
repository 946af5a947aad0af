#include "tutti/planning/schedules/timeline.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/planning/schedules/drawing.h"

namespace tutti {
namespace {

Timeline timeline_of(ScheduleKind kind, const PipelineShape& shape, const StageCosts& costs = {}) {
  return simulate(make_schedule(kind, shape), costs);
}

// Compares with the published formulas wherever they apply.
TEST(Timelines, BubbleMatchesTheFormula) {
  int compared = 0;
  for (const ScheduleKind kind : kScheduleKinds)
    for (const int ranks : {1, 2, 3, 4, 8})
      for (const int microbatches : {1, 2, 3, 4, 7, 8, 15, 16, 24, 32})
        for (const int chunks : {1, 2, 3, 4}) {
          const bool interleaves = kind == ScheduleKind::kInterleaved;
          if (interleaves ? chunks == 1 : chunks != (kind == ScheduleKind::kZeroBubbleV ? 2 : 1)) continue;
          for (const StageCosts& costs : {StageCosts{}, StageCosts{{1}, {1.25}, {0.75}, 0}}) {
            const Schedule schedule =
                make_schedule(kind, {.ranks = ranks, .microbatches = microbatches, .chunks = chunks});
            const auto formula = bubble_by_formula(schedule, costs);
            if (!formula) continue;
            EXPECT_NEAR(simulate(schedule, costs).bubble(), *formula, 1e-9)
                << name(kind) << ": " << ranks << " ranks, " << microbatches << " microbatches, " << chunks
                << " chunks";
            ++compared;
          }
        }
  EXPECT_GT(compared, 300);
}

// Megatron-LM's own examples: 4 ranks, 8 microbatches.
TEST(Timelines, KeepAsManyActivationsAsPublished) {
  const auto kept = [](ScheduleKind kind, const PipelineShape& shape) {
    const Timeline timeline = timeline_of(kind, shape);
    std::vector<int> most;
    for (int rank = 0; rank < shape.ranks; ++rank) most.push_back(timeline.most_kept(rank));
    return most;
  };
  using enum ScheduleKind;
  EXPECT_EQ(kept(kFillDrain, {.ranks = 4, .microbatches = 8}), (std::vector{8, 8, 8, 8}));
  EXPECT_EQ(kept(kOneForwardOneBackward, {.ranks = 4, .microbatches = 8}), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(kept(kInterleaved, {.ranks = 4, .microbatches = 8, .chunks = 2}), (std::vector{11, 9, 7, 5}));
  EXPECT_EQ(kept(kZeroBubbleH1, {.ranks = 4, .microbatches = 8}), (std::vector{4, 4, 4, 4}));
  EXPECT_EQ(kept(kZeroBubbleV, {.ranks = 4, .microbatches = 8, .chunks = 2}), (std::vector{8, 8, 8, 8}));
}

TEST(Timelines, SlowStagesAndMessagesShow) {
  const PipelineShape shape{.ranks = 2, .microbatches = 4};
  const Timeline slow = timeline_of(ScheduleKind::kOneForwardOneBackward, shape, {{1, 3}, {1, 3}, {1, 3}, 0});
  EXPECT_DOUBLE_EQ(slow.busy(0), 12);
  EXPECT_DOUBLE_EQ(slow.busy(1), 36);
  EXPECT_DOUBLE_EQ(slow.length(), 1 + 36 + 2);
  EXPECT_NEAR(slow.bubble(), 3.0 / 36, 1e-9);
  const Timeline far =
      timeline_of(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 1}, {{1}, {1}, {1}, 10});
  EXPECT_DOUBLE_EQ(far.length(), 1 + 10 + 3 + 10 + 2);
}

TEST(Timelines, MessagesOfALinkQueue) {
  const Schedule schedule = make_schedule(ScheduleKind::kFillDrain, {.ranks = 2, .microbatches = 4});
  const auto begins = [&](double passing) {
    std::vector<double> times;
    const Timeline timeline = simulate(schedule, {.message = 3, .passing = passing});
    for (const TimedAction& timed : timeline.ranks[1])
      if (timed.action.kind == ActionKind::kForward) times.push_back(timed.begin);
    return times;
  };
  EXPECT_EQ(begins(0), (std::vector<double>{4, 5, 6, 7}));
  EXPECT_EQ(begins(2), (std::vector<double>{4, 6, 8, 10}));
  EXPECT_THROW(begins(4), Exception);
}

TEST(Timelines, NamesRanksThatWaitForever) {
  Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 2});
  std::swap(schedule.actions[1][0], schedule.actions[1][1]);  // its backward before its forward
  try {
    simulate(schedule);
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.error().detail,
              "pipeline: rank 0 waits for ever before B0, action 2 of 4: no rank makes what it needs in time");
  }
  EXPECT_THROW(simulate(schedule, {{1, 1, 1}, {1}, {1}, 0}), Exception);
  EXPECT_THROW(simulate(schedule, {{-1}, {1}, {1}, 0}), Exception);
}

TEST(Drawings, ForATerminal) {
  EXPECT_EQ(draw_text(timeline_of(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 2})),
            "rank 0 |F0 F1 ......B0--- ...B1--- |\n"
            "rank 1 |...F0 B0--- F1 B1--- ......|\n");
  EXPECT_EQ(draw_text(timeline_of(ScheduleKind::kZeroBubbleH1, {.ranks = 2, .microbatches = 2}), 7),
            "rank 0 |FF.IWIW|\n"
            "rank 1 |.FIFIWW|\n");
}

TEST(Drawings, ForAPage) {
  const std::string svg =
      draw_svg(timeline_of(ScheduleKind::kInterleaved, {.ranks = 2, .microbatches = 2, .chunks = 2}), "a < b");
  EXPECT_NE(svg.find("<text x=\"64\" y=\"24\" font-size=\"15\">a &lt; b</text>"), std::string::npos);
  for (const char* action : {">F0a<", ">F1b<", ">B0b<", ">B1a<"})
    EXPECT_NE(svg.find(action), std::string::npos) << action;
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace tutti
