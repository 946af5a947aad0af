#include "tutti/launch/monitor/stalls.h"

#include <gmock/gmock.h>

namespace tutti::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using namespace std::chrono_literals;

constexpr std::int64_t kNow = 1'000'000'000'000;

void describe(const trace::FlightCall&, trace::FlightOperation& operation) {
  operation.call = "all_reduce (f32[4], sum)";
}

trace::ProgressCall call(std::uint64_t sequence, trace::FlightState state, double seconds_ago) {
  const std::int64_t at = kNow - std::int64_t(seconds_ago * 1e9);
  return {.sequence = sequence, .state = state, .started = at, .ended = state == trace::FlightState::kStarted ? 0 : at};
}

// A rank that waits in call `sequence` of the group "world", or has ended it.
RankSeen rank(int number, std::uint64_t sequence, trace::FlightState state, double seconds_ago = 3) {
  RankSeen seen{.rank = number};
  trace::RankProgress& p = seen.progress;
  p.pid = 100 + number;
  p.rank = number;
  p.world_size = 4;
  p.joined = p.recorded = true;
  p.steps = 5, p.step = 12, p.step_began = kNow - 9'000'000'000;
  p.read_at = kNow;
  trace::ProgressGroup group{.id = 1, .name = "world", .rank = number, .size = 4, .calls = sequence};
  group.newest = call(sequence, state, seconds_ago);
  if (state == trace::FlightState::kStarted) group.oldest = group.newest;
  p.groups.push_back(group);
  return seen;
}
constexpr auto kWaits = trace::FlightState::kStarted;
constexpr auto kEnded = trace::FlightState::kCompleted;

TEST(ActivityText, OfARankInACallAndInNone) {
  EXPECT_EQ(activity_text(rank(0, 42, kWaits).progress, describe),
            "step 12, for 3 s in all_reduce #42 (f32[4], sum) on group world");
  EXPECT_EQ(activity_text(rank(0, 41, kEnded, 7).progress, describe),
            "step 12, in no call for 7 s; its last call was all_reduce #41 (f32[4], sum) on group world");
  EXPECT_THAT(activity_text(rank(0, 41, trace::FlightState::kFailed).progress, describe),
              HasSubstr("on group world, which failed"));
  EXPECT_EQ(activity_text(rank(0, 42, kWaits).progress, nullptr), "step 12, for 3 s in collective #42 on group world");
}

TEST(ActivityText, OfARankThatHasNotComeSoFar) {
  trace::RankProgress p;
  EXPECT_EQ(activity_text(p, describe), "");
  p.pid = 1;
  EXPECT_EQ(activity_text(p, describe), "in tutti::init()");
  p.joined = true;
  EXPECT_EQ(activity_text(p, describe), "in no call");
  p.steps = 1, p.step = 7, p.step_began = kNow - 2'000'000'000, p.read_at = kNow;
  EXPECT_EQ(activity_text(p, describe), "step 7, for 2 s");
}

TEST(Hang, BlamesTheRankThatHasNotComeAndIsInNoCall) {
  const HangCause cause =
      explain_hang({rank(0, 42, kWaits), rank(1, 42, kWaits), rank(2, 41, kEnded, 7), rank(3, 42, kWaits)}, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(2));
  EXPECT_EQ(cause.text,
            "ranks 0, 1, 3 wait in all_reduce #42 (f32[4], sum) on group world for rank 2: step 12, in no call for "
            "7 s; its last call was all_reduce #41 (f32[4], sum) on group world");
}

TEST(Hang, BlamesARankThatIsStopped) {
  std::vector<RankSeen> ranks = {rank(0, 42, kWaits), rank(1, 42, kWaits)};
  ranks[1].suspended = true;  // in the middle of the call
  const HangCause cause = explain_hang(ranks, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(1));
  EXPECT_EQ(cause.text, "rank 1 is stopped (SIGSTOP or a debugger)");
}

TEST(Hang, SeesThatRanksWaitForOneAnotherInTwoGroups) {
  RankSeen a = rank(0, 42, kWaits), b = rank(1, 41, kEnded);
  trace::ProgressGroup other{.id = 2, .name = "dp", .calls = 6};
  a.progress.groups.push_back(other);
  other.calls = 7;
  other.newest = other.oldest = call(7, kWaits, 3);
  b.progress.groups.push_back(other);
  const HangCause cause = explain_hang({a, b}, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(1));
  EXPECT_THAT(cause.text, AllOf(HasSubstr("rank 0 waits in all_reduce #42"),
                                HasSubstr("which rank 1 has not joined, but waits elsewhere"),
                                HasSubstr("#7 (f32[4], sum) on group dp")));
}

TEST(Hang, BlamesNoRankOfThisNodeWhenAllHaveArrived) {
  const HangCause cause = explain_hang({rank(0, 42, kWaits), rank(1, 42, kWaits)}, describe);
  EXPECT_THAT(cause.blamed, IsEmpty());
  EXPECT_EQ(cause.text, "ranks 0, 1 wait in all_reduce #42 (f32[4], sum) on group world for ranks of other nodes");
}

TEST(Hang, BlamesTheProgramWhenNoRankIsInACall) {
  const HangCause cause = explain_hang({rank(0, 42, kEnded), rank(1, 42, kEnded)}, describe);
  EXPECT_THAT(cause.blamed, ElementsAre(0, 1));
  EXPECT_THAT(cause.text,
              HasSubstr("no rank is in a call, the program itself makes no progress: ranks 0, 1 are at: step 12"));
}

TEST(Slow, IsTheOneThatAllOthersWaitFor) {
  EXPECT_EQ(awaited_rank({rank(0, 42, kWaits), rank(1, 41, kEnded), rank(2, 42, kWaits)}), 1);
  EXPECT_EQ(awaited_rank({rank(0, 42, kWaits), rank(1, 41, kEnded), rank(2, 41, kEnded)}), std::nullopt);
  EXPECT_EQ(awaited_rank({rank(0, 42, kWaits), rank(1, 42, kWaits)}), std::nullopt);
  EXPECT_EQ(awaited_rank({rank(0, 41, kEnded)}), std::nullopt);
}

TEST(Limit, IsUnsetUntilStepsAreReportedAndThenLearned) {
  HangLimit limit(std::nullopt);
  EXPECT_EQ(limit.limit(), std::nullopt);
  limit.learn(100s, 1);  // reading the data, before the first step
  EXPECT_EQ(limit.limit(), std::nullopt);
  limit.learn(2s, 3);
  EXPECT_EQ(limit.limit(), std::optional<Duration>(5min));
  EXPECT_EQ(limit.warning(), std::optional<Duration>(30s));
  EXPECT_EQ(limit.text(), "learned: the ranks made progress every 2 s or sooner");
  limit.learn(60s, 4);
  EXPECT_EQ(limit.limit(), std::optional<Duration>(20min));
  EXPECT_EQ(limit.warning(), std::optional<Duration>(10min));
}

TEST(Limit, ThatWasGivenCountsFromTheStart) {
  const HangLimit limit(Duration(10s));
  EXPECT_EQ(limit.limit(), std::optional<Duration>(10s));
  EXPECT_EQ(limit.warning(), std::optional<Duration>(5s));
  EXPECT_EQ(limit.text(), "set by --hang-timeout");
  EXPECT_EQ(HangLimit(Duration(0)).limit(), std::nullopt);
  EXPECT_EQ(HangLimit(Duration(0)).warning(), std::nullopt);
}

RankSeen seen_rank(int number, bool in_call, double seconds) {
  RankSeen seen{.rank = number};
  seen.progress.pid = 100 + number;
  seen.progress.joined = seen.progress.recorded = true;
  seen.progress.read_at = std::int64_t(seconds * 1e9);
  const trace::ProgressCall call{.sequence = 1,
                                 .state = in_call ? trace::FlightState::kStarted : trace::FlightState::kCompleted,
                                 .started = 1,
                                 .ended = in_call ? 0 : 2};
  trace::ProgressGroup world{.id = 1, .name = "world", .calls = 1, .newest = call};
  if (in_call) world.oldest = call;
  seen.progress.groups = {world};
  return seen;
}

// `checks` observations in which rank 1 of three computes.
std::optional<Straggler> observe(Stragglers& ranks, int checks, bool standing = false, double processor = 0.1) {
  std::optional<Straggler> found;
  for (int i = 0; i < checks; ++i) {
    std::vector<RankSeen> seen = {seen_rank(0, true, 0.5 * i), seen_rank(1, false, 0.5 * i),
                                  seen_rank(2, true, 0.5 * i)};
    seen[1].processor = 0.5 * i * processor;
    if (const auto slow = ranks.check(seen, standing)) found = slow;
  }
  return found;
}

TEST(Stragglers, AreReportedOnceAtTheEndOfAWindow) {
  Stragglers ranks;
  EXPECT_FALSE(observe(ranks, Stragglers::kChecks - 1));
  const auto slow = observe(ranks, 1);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 1);
  EXPECT_EQ(slow->pid, 101);
  EXPECT_EQ(slow->checks, Stragglers::kChecks);
  EXPECT_FALSE(observe(ranks, Stragglers::kChecks));
}

TEST(Stragglers, AreNotThoseThatStandStill) {
  Stragglers ranks;
  EXPECT_FALSE(observe(ranks, Stragglers::kChecks, true));
  EXPECT_TRUE(observe(ranks, Stragglers::kChecks));
}

TEST(Stragglers, WaitTheOthersDo) {
  Stragglers ranks;
  observe(ranks, 5);
  EXPECT_EQ(ranks.waits(0), -1) << "too early";
  observe(ranks, 30);
  EXPECT_GT(ranks.waits(0), 0.9);
  EXPECT_LT(ranks.waits(1), 0.1);
  EXPECT_EQ(ranks.waits(3), -1);
}

TEST(Stragglers, AreTheSentence) {
  Stragglers idle, busy;
  EXPECT_THAT(straggler_text(*observe(idle, Stragglers::kChecks)),
              AllOf(HasSubstr("rank 1 (pid 101) is slow: in 60 of 60 checks (29.5 s) all other ranks of this node "
                              "waited for it; it used 10 % of a core meanwhile, so it waits too: "),
                    HasSubstr("a quota (cpu.max)")));
  EXPECT_THAT(straggler_text(*observe(busy, Stragglers::kChecks, false, 1)),
              HasSubstr("it used 100 % of a core meanwhile: it has more to compute than the others, or a slower core; "
                        "`perf top -p 101` shows it"));
}

}  // namespace
}  // namespace tutti::launch
