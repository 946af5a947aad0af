#include "tutti/planning/schedules/messages.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti {
namespace {

// "o1.3": the output of stage 1 for microbatch 3; "g2.0": the gradient of stage 2's input.
std::string brief(const std::vector<StageMessage>& messages) {
  std::string text;
  for (const StageMessage& message : messages)
    text += (text.empty() ? "" : " ") + std::string(message.kind == StageMessage::Kind::kOutput ? "o" : "g") +
            std::to_string(message.stage) + "." + std::to_string(message.microbatch);
  return text;
}

TEST(StageMessages, GoInTheOrderOfTheSendersActions) {
  const Schedule plain = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 3, .microbatches = 4});
  EXPECT_EQ(brief(sent(plain, 0, 1)), "o0.0 o0.1 o0.2 o0.3");
  EXPECT_EQ(brief(sent(plain, 1, 0)), "g1.0 g1.1 g1.2 g1.3");
  EXPECT_EQ(brief(sent(plain, 0, 2)), "");
  // Two ranks with two chunks each: both directions between adjacent stages use one pair of ranks.
  const Schedule looped = make_schedule(ScheduleKind::kInterleaved, {.ranks = 2, .microbatches = 2, .chunks = 2});
  EXPECT_EQ(to_string(looped.actions[1], 2), "F0a F1a F0b B0b F1b B1b B0a B1a");
  EXPECT_EQ(brief(sent(looped, 1, 0)), "o1.0 o1.1 g3.0 g3.1 g1.0 g1.1");
  EXPECT_EQ(to_string(looped.actions[0], 2), "F0a F1a F0b F1b B0b B1b B0a B1a");
  EXPECT_EQ(brief(sent(looped, 0, 1)), "o0.0 o0.1 o2.0 o2.1 g2.0 g2.1");
}

TEST(StageMessages, NothingIsSentAtTheTurnOfAV) {
  const Schedule v = make_schedule(ScheduleKind::kZeroBubbleV, {.ranks = 2, .microbatches = 1, .chunks = 2});
  EXPECT_EQ(brief(sent(v, 0, 1)), "o0.0 g3.0");
  EXPECT_EQ(brief(sent(v, 1, 0)), "o2.0 g1.0");
  EXPECT_FALSE(made_by(v, 1, {ActionKind::kForward, 0, 0}));
  EXPECT_FALSE(needed_by(v, 1, {ActionKind::kForward, 0, 1}));
  EXPECT_FALSE(needed_by(v, 0, {ActionKind::kForward, 0, 0}));
  EXPECT_FALSE(made_by(v, 0, {ActionKind::kBackwardInput, 0, 0}));
  EXPECT_FALSE(made_by(v, 0, {ActionKind::kBackwardWeight, 0, 1}));
}

TEST(StageMessages, AreNumberedAndNamed) {
  const StageMessage output{StageMessage::Kind::kOutput, 3, 1, 1, 2},
      gradient{StageMessage::Kind::kGradient, 3, 2, 2, 1};
  EXPECT_EQ(to_string(output), "the output of stage 1 for microbatch 3");
  EXPECT_EQ(to_string(gradient), "the gradient of stage 2's input for microbatch 3");
  EXPECT_EQ(number_of(output, 4), 26);
  EXPECT_EQ(number_of(gradient, 4), 29);
}

// For every schedule: each needed message is produced once, by the expected rank, and numbers are unique.
TEST(StageMessages, EveryNeededMessageIsSent) {
  for (const ScheduleKind kind : kScheduleKinds)
    for (const int ranks : {1, 2, 3, 5})
      for (const int microbatches : {1, 2, 7}) {
        const bool chunked = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubbleV;
        const PipelineShape shape{.ranks = ranks, .microbatches = microbatches, .chunks = chunked ? 2 : 1};
        const Schedule schedule = make_schedule(kind, shape);
        std::set<int> made, needed;
        for (int rank = 0; rank < ranks; ++rank) {
          for (int peer = 0; peer < ranks; ++peer)
            for (const StageMessage& message : sent(schedule, peer, rank))
              EXPECT_TRUE(made.insert(number_of(message, shape.stages())).second) << to_string(message);
          for (const Action& action : schedule.actions[std::size_t(rank)])
            if (const auto message = needed_by(schedule, rank, action)) {
              EXPECT_EQ(message->to, rank);
              needed.insert(number_of(*message, shape.stages()));
            }
        }
        EXPECT_EQ(made, needed) << name(kind) << " " << ranks << " " << microbatches;
      }
}

}  // namespace
}  // namespace tutti
