#include "tutti/launch/agent/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tutti/launch/exit_codes.h"

namespace tutti::launch {
namespace {

using ::testing::HasSubstr;

Fault at_step(std::int64_t step) { return {.text = "rank 1 died", .code = 137, .rank = 1, .step = step}; }
Fault after(double seconds) { return {.text = "rank 1 died", .code = 137, .rank = 1, .seconds = seconds}; }

TEST(RestartPolicy, WithoutRestartsNothingIsSaid) {
  const Verdict verdict = judge({}, {}, at_step(4));
  EXPECT_FALSE(verdict.restart);
  EXPECT_EQ(verdict.code, 0);
  EXPECT_EQ(verdict.reason, "");
}

TEST(RestartPolicy, RestartsAsOftenAsItMay) {
  const RestartPolicy policy{.most = 2};
  const Verdict first = judge(policy, {}, at_step(4)), second = judge(policy, {at_step(4)}, at_step(9)),
                third = judge(policy, {at_step(4), at_step(9)}, at_step(11));
  EXPECT_TRUE(first.restart);
  EXPECT_THAT(first.reason, HasSubstr("restart 1 of 2 in "));
  EXPECT_TRUE(second.restart);
  EXPECT_FALSE(third.restart);
  EXPECT_EQ(third.code, 0);
  EXPECT_EQ(third.reason, "all 2 restarts are used");
  EXPECT_EQ(judge({.most = 1}, {at_step(4)}, at_step(9)).reason, "the one restart is used");
}

TEST(RestartPolicy, TheSameStepAgainAndAgainIsNoProgress) {
  const RestartPolicy policy{.most = 100};
  EXPECT_TRUE(judge(policy, {at_step(120)}, at_step(120)).restart);
  const Verdict third = judge(policy, {at_step(120), at_step(120)}, at_step(119));
  EXPECT_FALSE(third.restart);
  EXPECT_EQ(third.code, kExitNoProgress);
  EXPECT_THAT(third.reason, HasSubstr("step 119 was the last that was reached, 3 times in a row"));
  EXPECT_TRUE(judge(policy, {at_step(120), at_step(120)}, at_step(121)).restart);
  EXPECT_TRUE(judge({.most = 100, .same_place = 0}, {at_step(120), at_step(120)}, at_step(120)).restart);
  // A crash before the first step, once steps were told, is no progress either.
  EXPECT_EQ(judge(policy, {at_step(120), at_step(-1)}, at_step(-1)).code, kExitNoProgress);
}

TEST(RestartPolicy, WithoutReportedStepsTimeCounts) {
  const RestartPolicy policy{.most = 100};
  EXPECT_TRUE(judge(policy, {after(3), after(2)}, after(40)).restart);
  const Verdict quick = judge(policy, {after(40), after(2)}, after(1));
  EXPECT_EQ(quick.code, kExitNoProgress);
  EXPECT_THAT(quick.reason, HasSubstr("the ranks failed within 10 s of their start, 3 times in a row"));
}

TEST(RestartPolicy, OneFailureMayBeEnough) {
  const RestartPolicy policy{.most = 100, .same_place = 1};
  const Verdict first = judge(policy, {}, at_step(4));
  EXPECT_FALSE(first.restart);
  EXPECT_EQ(first.code, kExitNoProgress);
  EXPECT_THAT(first.reason, HasSubstr("step 4 was the last that was reached, and one failure is enough"));
  EXPECT_THAT(judge(policy, {}, after(40)).reason, HasSubstr("the ranks reported no step, and one failure is enough"));
  const Fault lost{.text = "node 2 (c) is lost"};
  EXPECT_TRUE(judge(policy, {}, lost).restart);
  EXPECT_TRUE(judge(policy, {lost}, lost).restart) << "it is not the program's";
  EXPECT_TRUE(judge({.most = 100, .same_place = 2}, {}, at_step(4)).restart);
}

TEST(RestartPolicy, ALostNodeIsNotTheProgramsFault) {
  const RestartPolicy policy{.most = 100};
  const Fault lost{.text = "node 2 (c) is lost"};
  EXPECT_TRUE(judge(policy, {at_step(5), at_step(5)}, lost).restart);
  EXPECT_EQ(judge(policy, {at_step(5), lost, at_step(5)}, at_step(5)).code, kExitNoProgress);
}

TEST(RestartPolicy, SomeEndsAreFinal) {
  const RestartPolicy policy{.most = 3};
  EXPECT_FALSE(judge(policy, {}, {.text = "the time limit has passed", .code = 124, .final = true}).restart);
  Fault usage = at_step(0), hopeless = at_step(0);
  usage.code = kExitUsage;
  hopeless.code = kExitNoProgress;
  EXPECT_THAT(judge(policy, {}, usage).reason, HasSubstr("wrong usage"));
  EXPECT_THAT(judge(policy, {}, hopeless).reason, HasSubstr("a restart would not help"));
}

TEST(RestartPolicy, ThePauseDoublesOnTheSpotAndHasNoise) {
  const RestartPolicy policy{
      .most = 100, .first_pause = std::chrono::seconds(1), .longest_pause = std::chrono::seconds(5), .same_place = 0};
  std::vector<Fault> past;
  for (const double expected : {1., 2., 4., 5., 5.}) {
    const double pause = to_seconds(judge(policy, past, at_step(7)).pause);
    EXPECT_LE(pause, expected);
    EXPECT_GE(pause, 0.75 * expected);
    past.push_back(at_step(7));
  }
  EXPECT_LE(judge(policy, past, at_step(8)).pause, std::chrono::seconds(1));
  Fault other = at_step(8);
  other.text = "rank 2 died";
  EXPECT_NE(judge(policy, past, at_step(8)).pause, judge(policy, past, other).pause);
}

WorkerEnd with_code(int rank, int code) { return {.rank = rank, .exit = {.code = code}}; }
WorkerEnd by_signal(int rank, int signal) { return {.rank = rank, .exit = {.signal = signal}}; }

TEST(Outcome, OfRanksThatEndedByThemselves) {
  EXPECT_EQ(code_of_ends({}, 0), 0);
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 0), with_code(1, 0)}, 0), 0);
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 0), with_code(1, 75), with_code(2, 0)}, 0), 75);
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 75), with_code(1, 3)}, 0), 3);
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 0), by_signal(1, SIGKILL)}, 0), 137);
}

TEST(Outcome, OfRanksThatTheUserStopped) {
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 0), by_signal(1, SIGKILL)}, SIGTERM), 143) << "it needed more";
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 5), by_signal(1, SIGTERM)}, SIGTERM), 5);
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 75), with_code(1, 75)}, SIGTERM), 75);
  EXPECT_EQ(code_of_ends(std::vector{with_code(0, 0)}, SIGTERM), 0) << "it ended well all the same";
}

TEST(Outcome, RanksThatSavedAreNamed) {
  const std::vector ends = {with_code(0, 75), with_code(1, 0), with_code(2, 75)};
  EXPECT_EQ(saved_text(ends, true),
            "ranks 0, 2 left with code 75: their state is saved, and the job can be started again");
  EXPECT_THAT(saved_text(ends, false), testing::EndsWith("again (this node got no stop signal)"));
}

}  // namespace
}  // namespace tutti::launch
