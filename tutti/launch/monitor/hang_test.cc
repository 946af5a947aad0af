#include "tutti/launch/monitor/hang.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

constexpr std::int64_t kNow = 1'000'000'000'000;

void describe(const FlightCall&, FlightOperation& operation) { operation.call = "all_reduce (f32[4], sum)"; }

ProgressCall call(std::uint64_t sequence, FlightState state, double seconds_ago) {
  const std::int64_t at = kNow - std::int64_t(seconds_ago * 1e9);
  return {.sequence = sequence, .state = state, .started = at, .ended = state == FlightState::kStarted ? 0 : at};
}

// A rank that waits in call `sequence` of the group "world", or has ended it.
RankSeen rank(int number, std::uint64_t sequence, FlightState state, double seconds_ago = 3) {
  RankSeen seen{.rank = number};
  RankProgress& p = seen.progress;
  p.pid = 100 + number;
  p.rank = number;
  p.world_size = 4;
  p.joined = p.recorded = true;
  p.steps = 5, p.step = 12, p.step_began = kNow - 9'000'000'000;
  p.read_at = kNow;
  ProgressGroup group{.id = 1, .name = "world", .rank = number, .size = 4, .calls = sequence};
  group.newest = call(sequence, state, seconds_ago);
  if (state == FlightState::kStarted) group.oldest = group.newest;
  p.groups.push_back(group);
  return seen;
}
constexpr auto kWaits = FlightState::kStarted;
constexpr auto kEnded = FlightState::kCompleted;

TEST(Words, OfARankInACallAndInNone) {
  EXPECT_EQ(doing_words(rank(0, 42, kWaits).progress, describe),
            "step 12, for 3 s in all_reduce #42 (f32[4], sum) on group world");
  EXPECT_EQ(doing_words(rank(0, 41, kEnded, 7).progress, describe),
            "step 12, in no call for 7 s; its last was all_reduce #41 (f32[4], sum) on group world");
  EXPECT_THAT(doing_words(rank(0, 41, FlightState::kFailed).progress, describe),
              HasSubstr("on group world, which failed"));
  EXPECT_EQ(doing_words(rank(0, 42, kWaits).progress, nullptr), "step 12, for 3 s in collective #42 on group world");
}

TEST(Words, OfARankThatHasNotComeSoFar) {
  RankProgress p;
  EXPECT_EQ(doing_words(p, describe), "");
  p.pid = 1;
  EXPECT_EQ(doing_words(p, describe), "in tutti::init()");
  p.joined = true;
  EXPECT_EQ(doing_words(p, describe), "in no call");
  p.steps = 1, p.step = 7, p.step_began = kNow - 2'000'000'000, p.read_at = kNow;
  EXPECT_EQ(doing_words(p, describe), "step 7, for 2 s");
}

TEST(Hang, BlamesTheRankThatHasNotComeAndIsInNoCall) {
  const HangCause cause =
      explain_hang({rank(0, 42, kWaits), rank(1, 42, kWaits), rank(2, 41, kEnded, 7), rank(3, 42, kWaits)}, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(2));
  EXPECT_EQ(cause.words,
            "ranks 0, 1, 3 wait in all_reduce #42 (f32[4], sum) on group world for rank 2: step 12, in no call for "
            "7 s; its last was all_reduce #41 (f32[4], sum) on group world");
}

TEST(Hang, BlamesARankThatIsStopped) {
  std::vector<RankSeen> ranks = {rank(0, 42, kWaits), rank(1, 42, kWaits)};
  ranks[1].suspended = true;  // in the middle of the call
  const HangCause cause = explain_hang(ranks, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(1));
  EXPECT_EQ(cause.words, "rank 1 is stopped (SIGSTOP or a debugger)");
}

TEST(Hang, SeesThatRanksWaitForOneAnotherInTwoGroups) {
  RankSeen a = rank(0, 42, kWaits), b = rank(1, 41, kEnded);
  ProgressGroup other{.id = 2, .name = "dp", .calls = 6};
  a.progress.groups.push_back(other);
  other.calls = 7;
  other.newest = other.oldest = call(7, kWaits, 3);
  b.progress.groups.push_back(other);
  const HangCause cause = explain_hang({a, b}, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(1));
  EXPECT_THAT(cause.words, AllOf(HasSubstr("rank 0 waits in all_reduce #42"),
                                 HasSubstr("to which rank 1 has not come, but waits elsewhere"),
                                 HasSubstr("#7 (f32[4], sum) on group dp")));
}

TEST(Hang, BlamesNobodyHereWhereAllHaveCome) {
  const HangCause cause = explain_hang({rank(0, 42, kWaits), rank(1, 42, kWaits)}, describe);
  EXPECT_THAT(cause.blamed, IsEmpty());
  EXPECT_EQ(cause.words, "ranks 0, 1 wait in all_reduce #42 (f32[4], sum) on group world for ranks of other nodes");
}

TEST(Hang, BlamesTheProgramWhereNobodyIsInACall) {
  const HangCause cause = explain_hang({rank(0, 42, kEnded), rank(1, 42, kEnded)}, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(0, 1));
  EXPECT_THAT(cause.words,
              HasSubstr("no rank is in a call, the program itself stands still: ranks 0, 1 are at: step 12"));
}

TEST(Slow, IsTheOneThatAllOthersWaitFor) {
  EXPECT_EQ(awaited_rank({rank(0, 42, kWaits), rank(1, 41, kEnded), rank(2, 42, kWaits)}), 1);
  EXPECT_EQ(awaited_rank({rank(0, 42, kWaits), rank(1, 41, kEnded), rank(2, 41, kEnded)}), std::nullopt);
  EXPECT_EQ(awaited_rank({rank(0, 42, kWaits), rank(1, 42, kWaits)}), std::nullopt);
  EXPECT_EQ(awaited_rank({rank(0, 41, kEnded)}), std::nullopt);
}

TEST(Limit, IsNoneUntilStepsAreToldAndThenLearned) {
  HangLimit limit(std::nullopt);
  EXPECT_EQ(limit.limit(), std::nullopt);
  limit.learn(100s, 1);  // reading the data, before the first step
  EXPECT_EQ(limit.limit(), std::nullopt);
  limit.learn(2s, 3);
  EXPECT_EQ(limit.limit(), std::optional<Duration>(5min));
  EXPECT_EQ(limit.warning(), std::optional<Duration>(30s));
  EXPECT_EQ(limit.words(), "learned: the ranks got on every 2 s or sooner");
  limit.learn(60s, 4);
  EXPECT_EQ(limit.limit(), std::optional<Duration>(20min));
  EXPECT_EQ(limit.warning(), std::optional<Duration>(10min));
}

TEST(Limit, ThatWasGivenCountsFromTheStart) {
  const HangLimit limit(Duration(10s));
  EXPECT_EQ(limit.limit(), std::optional<Duration>(10s));
  EXPECT_EQ(limit.warning(), std::optional<Duration>(5s));
  EXPECT_EQ(limit.words(), "as --hang-timeout has it");
  EXPECT_EQ(HangLimit(Duration(0)).limit(), std::nullopt);
  EXPECT_EQ(HangLimit(Duration(0)).warning(), std::nullopt);
}

}  // namespace
}  // namespace tutti
