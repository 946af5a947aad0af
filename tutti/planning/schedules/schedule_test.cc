#include "tutti/planning/schedules/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tutti/base/error.h"
#include "tutti/planning/schedules/timeline.h"

namespace tutti {
namespace {

struct Golden {
  ScheduleKind kind;
  PipelineShape shape;
  std::vector<std::string> actions;
};
// The orders of Megatron-LM's schedules.py (megatron/core/pipeline_parallel, January 2026).
const Golden kGolden[] = {
    {ScheduleKind::kOneForwardOneBackward,
     {.ranks = 2, .microbatches = 4},
     {"F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}},
    {ScheduleKind::kOneForwardOneBackward,
     {.ranks = 4, .microbatches = 8},
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
      "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {ScheduleKind::kOneForwardOneBackward,
     {.ranks = 4, .microbatches = 2},
     {"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"}},
    {ScheduleKind::kInterleaved,
     {.ranks = 2, .microbatches = 4, .chunks = 2},
     {"F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a",
      "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"}},
    {ScheduleKind::kInterleaved,
     {.ranks = 4, .microbatches = 8, .chunks = 2},
     {"F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a B0b F7a B1b F4b B2b F5b B3b F6b B0a F7b B1a B2a B3a B4b "
      "B5b B6b B7b B4a B5a B6a B7a",
      "F0a F1a F2a F3a F0b F1b F2b F3b F4a B0b F5a B1b F6a B2b F7a B3b F4b B0a F5b B1a F6b B2a F7b B3a B4b "
      "B5b B6b B7b B4a B5a B6a B7a",
      "F0a F1a F2a F3a F0b F1b F2b B0b F3b B1b F4a B2b F5a B3b F6a B0a F7a B1a F4b B2a F5b B3a F6b B4b F7b "
      "B5b B6b B7b B4a B5a B6a B7a",
      "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b F4a B0a F5a B1a F6a B2a F7a B3a F4b B4b F5b B5b F6b "
      "B6b F7b B7b B4a B5a B6a B7a"}},
    {ScheduleKind::kInterleaved,
     {.ranks = 4, .microbatches = 4, .chunks = 4},
     {"F0a F1a F2a F3a F0b F1b F2b F3b F0c F1c F2c F3c F0d F1d F2d F3d B0d B1d B2d B3d B0c B1c B2c B3c B0b "
      "B1b B2b B3b B0a B1a B2a B3a",
      "F0a F1a F2a F3a F0b F1b F2b F3b F0c F1c F2c F3c F0d F1d F2d F3d B0d B1d B2d B3d B0c B1c B2c B3c B0b "
      "B1b B2b B3b B0a B1a B2a B3a",
      "F0a F1a F2a F3a F0b F1b F2b F3b F0c F1c F2c F3c F0d F1d F2d B0d F3d B1d B2d B3d B0c B1c B2c B3c B0b "
      "B1b B2b B3b B0a B1a B2a B3a",
      "F0a F1a F2a F3a F0b F1b F2b F3b F0c F1c F2c F3c F0d B0d F1d B1d F2d B2d F3d B3d B0c B1c B2c B3c B0b "
      "B1b B2b B3b B0a B1a B2a B3a"}},
};

TEST(Schedules, MatchMegatronsExactly) {
  for (const Golden& golden : kGolden) {
    const Schedule schedule = make_schedule(golden.kind, golden.shape);
    for (int rank = 0; rank < golden.shape.ranks; ++rank)
      EXPECT_EQ(to_string(schedule.actions[rank], golden.shape.chunks), golden.actions[rank])
          << name(golden.kind) << ", rank " << rank << " of " << golden.shape.ranks;
  }
}

// The tables of the papers' figures: Qi et al., "Zero Bubble Pipeline Parallelism", figure 2 (H1), and figure 2 of the
// second paper (V-ZB). Written by hand for rank 0 and the last rank of a small pipeline.
TEST(Schedules, ZeroBubbleByHand) {
  const Schedule h1 = make_schedule(ScheduleKind::kZeroBubbleH1, {.ranks = 3, .microbatches = 4});
  EXPECT_EQ(to_string(h1.actions[0], 1), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(to_string(h1.actions[1], 1), "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  EXPECT_EQ(to_string(h1.actions[2], 1), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
  const Schedule v = make_schedule(ScheduleKind::kZeroBubbleV, {.ranks = 2, .microbatches = 3, .chunks = 2});
  EXPECT_EQ(to_string(v.actions[0], 2), "F0a F1a F2a F0b I0b W0b F1b I1b W1b I0a W0a F2b I2b W2b I1a W1a I2a W2a");
  EXPECT_EQ(to_string(v.actions[1], 2), "F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b I1a I2b I2a W1a W2b W2a");
}

TEST(Schedules, StagesOfAVTurnBack) {
  const Schedule v = make_schedule(ScheduleKind::kZeroBubbleV, {.ranks = 3, .microbatches = 1, .chunks = 2});
  const Schedule looped = make_schedule(ScheduleKind::kInterleaved, {.ranks = 3, .microbatches = 1, .chunks = 2});
  const int v_ranks[] = {0, 1, 2, 2, 1, 0}, looped_ranks[] = {0, 1, 2, 0, 1, 2};
  for (int stage = 0; stage < 6; ++stage) {
    EXPECT_EQ(v.rank_of(stage), v_ranks[stage]);
    EXPECT_EQ(looped.rank_of(stage), looped_ranks[stage]);
    for (const Schedule* schedule : {&v, &looped})
      EXPECT_EQ(schedule->stage_of(schedule->rank_of(stage), schedule->chunk_of(stage)), stage);
  }
}

// For all shapes up to 6 ranks, 4 chunks and 13 microbatches: each action occurs once, and no rank waits forever.
TEST(Schedules, AreCompleteAndTerminate) {
  for (const ScheduleKind kind : kScheduleKinds)
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (int microbatches = 1; microbatches <= 13; ++microbatches)
        for (int chunks = 1; chunks <= 4; ++chunks)
          for (const int group : {0, ranks, ranks + 1, 2 * ranks + 1})
            for (const bool forward_only : {false, true}) {
              const bool interleaves = kind == ScheduleKind::kInterleaved;
              if (interleaves ? chunks == 1 : chunks != (kind == ScheduleKind::kZeroBubbleV ? 2 : 1)) continue;
              if (!interleaves && group != 0) continue;
              const PipelineShape shape{ranks, microbatches, chunks, group, forward_only};
              const Schedule schedule = make_schedule(kind, shape);
              SCOPED_TRACE(testing::Message() << name(kind) << ": " << ranks << " ranks, " << microbatches
                                              << " microbatches, " << chunks << " chunks, groups of " << group);
              const Timeline timeline = simulate(schedule);
              for (int rank = 0; rank < ranks; ++rank) {
                std::map<std::pair<int, int>, std::multiset<ActionKind>> seen;
                for (const Action& action : schedule.actions[rank])
                  seen[{action.microbatch, action.chunk}].insert(action.kind);
                ASSERT_EQ(seen.size(), std::size_t(microbatches * chunks));
                using enum ActionKind;
                for (const auto& [place, kinds] : seen) {
                  if (forward_only)
                    ASSERT_EQ(kinds, (std::multiset{kForward}));
                  else if (kinds.contains(kBackward))
                    ASSERT_EQ(kinds, (std::multiset{kForward, kBackward}));
                  else
                    ASSERT_EQ(kinds, (std::multiset{kForward, kBackwardInput, kBackwardWeight}));
                }
              }
            }
}

TEST(Schedules, UnsupportedShapesAreExplained) {
  const auto text = [](ScheduleKind kind, PipelineShape shape) {
    try {
      make_schedule(kind, shape);
    } catch (const Exception& error) {
      return error.error().detail;
    }
    return std::string("none");
  };
  using enum ScheduleKind;
  EXPECT_EQ(text(kOneForwardOneBackward, {.ranks = 4, .microbatches = 8, .chunks = 2}),
            "schedule 1f1b: 2 chunks a rank, expected 1 (interleaved and zb-v take more)");
  EXPECT_EQ(text(kInterleaved, {.ranks = 4, .microbatches = 8}),
            "schedule interleaved: 1 chunk a rank, expected 2 or more (1f1b has one)");
  EXPECT_EQ(
      text(kInterleaved, {.ranks = 4, .microbatches = 8, .chunks = 2, .microbatch_group = 3}),
      "schedule interleaved: groups of 3 microbatches, expected at least as many as there are pipeline ranks (4): "
      "else each waits for the last rank");
  EXPECT_EQ(text(kZeroBubbleV, {.ranks = 4, .microbatches = 8, .chunks = 3}),
            "schedule zb-v: 3 chunks a rank, expected 2: a V has two arms");
  EXPECT_EQ(text(kFillDrain, {.ranks = 0, .microbatches = 8}),
            "schedule fill-drain: 0 pipeline ranks, expected 1 or more");
  EXPECT_EQ(text(kFillDrain, {.ranks = 4, .microbatches = 0}),
            "schedule fill-drain: 0 microbatches, expected 1 or more");
  EXPECT_EQ(text(kZeroBubbleH1, {.ranks = 4, .microbatches = 8, .microbatch_group = 4}),
            "schedule zb-h1: groups of 4 microbatches are for interleaved only");
  EXPECT_EQ(text(kFillDrain, {.ranks = 4096, .microbatches = 1 << 20}).substr(0, 79),
            "schedule fill-drain: 4096 ranks x 1 chunks x 1048576 microbatches are more than");
}

}  // namespace
}  // namespace tutti
