#include "tutti/comm/plans/plan.h"

#include <gmock/gmock.h>

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::uint32_t> after(const Plan& plan, std::size_t step) {
  const auto dependencies = plan.dependencies(plan.steps[step]);
  return {dependencies.begin(), dependencies.end()};
}

TEST(PlanBuilder, OrdersStepsThatTouchTheSameBytes) {
  PlanBuilder builder(Algorithm::kRing);
  builder.recv(1, {Area::kOut, 0, 100});                                // 0: writes
  builder.send(2, {Area::kOut, 50, 10});                                // 1: reads part of it
  builder.send(3, {Area::kOut, 55, 100});                               // 2: overlaps 0 and 1
  builder.copy({Area::kIn, 0, 10}, {Area::kOut, 58, 10});               // 3: overwrites the bytes that 1 and 2 read
  builder.send(4, {Area::kOut, 0, 50});                                 // 4: only 0
  builder.send(5, {Area::kOut, 0, 100});                                // 5: 0 and 3
  builder.recv_reduce(6, {Area::kIn, 0, 10}, {Area::kScratch, 0, 10});  // 6: no dependency
  builder.reduce({Area::kScratch, 0, 10}, {Area::kOut, 200, 10});       // 7: after 6, not after itself
  const Plan plan = std::move(builder).build();
  EXPECT_THAT(after(plan, 0), IsEmpty());
  EXPECT_THAT(after(plan, 1), ElementsAre(0));
  EXPECT_THAT(after(plan, 2), ElementsAre(0));
  EXPECT_THAT(after(plan, 3), ElementsAre(1, 2));
  EXPECT_THAT(after(plan, 4), ElementsAre(0));
  EXPECT_THAT(after(plan, 5), ElementsAre(0, 3));
  EXPECT_THAT(after(plan, 6), IsEmpty());
  EXPECT_THAT(after(plan, 7), ElementsAre(6));
}

TEST(PlanBuilder, SendsOfTheNextRoundWaitForSendsOfThisRound) {
  PlanBuilder builder(Algorithm::kRing);
  builder.next_round();
  builder.send(1, {Area::kOut, 0, 8});  // 0
  builder.recv(1, {Area::kIn, 0, 8});   // 1: receives do not wait
  builder.next_round();
  builder.recv(2, {Area::kIn, 8, 8});   // 2
  builder.send(2, {Area::kOut, 8, 8});  // 3
  builder.send(2, {Area::kOut, 8, 8});  // 4
  const Plan plan = std::move(builder).build();
  EXPECT_THAT(after(plan, 0), IsEmpty());
  EXPECT_THAT(after(plan, 2), IsEmpty());
  EXPECT_THAT(after(plan, 3), ElementsAre(0));
  EXPECT_THAT(after(plan, 4), ElementsAre(0));
}

TEST(PlanBuilder, EmptyRangesConflictWithNothing) {
  PlanBuilder builder(Algorithm::kRing);
  builder.recv(1, {Area::kOut, 8, 0});
  builder.send(1, {Area::kOut, 0, 16});
  builder.copy({Area::kOut, 0, 0}, {Area::kIn, 0, 0});
  const Plan plan = std::move(builder).build();
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_THAT(after(plan, 1), IsEmpty());
}

TEST(Ranges, PartsAreWholeElementsAndCoverAll) {
  for (const std::size_t count : {0, 1, 6, 7, 8, 1001}) {
    const Range whole{Area::kIn, 16, count * 4};
    std::size_t at = whole.offset;
    for (int part = 0; part < 7; ++part) {
      const Range range = part_of(whole, 4, 7, part);
      EXPECT_EQ(range.offset, at);
      EXPECT_GE(range.bytes / 4, count / 7);
      EXPECT_LE(range.bytes / 4, count / 7 + 1);
      at += range.bytes;
    }
    EXPECT_EQ(at, whole.offset + whole.bytes);
  }
}

TEST(Ranges, SegmentsAreWholeElements) {
  const auto segments = segments_of({Area::kIn, 8, 40}, 8, 17);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[0], (Range{Area::kIn, 8, 16}));
  EXPECT_EQ(segments[2], (Range{Area::kIn, 40, 8}));
  EXPECT_EQ(segments_of({Area::kIn, 0, 16}, 8, 1).size(), 2u) << "a segment smaller than an element holds one";
  EXPECT_EQ(segments_of({Area::kIn, 0, 0}, 8, 64).size(), 1u);
}

}  // namespace
}  // namespace tutti::comm
