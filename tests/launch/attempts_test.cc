// A job that fails and starts again: how often, when it gives up, what the workers and the user see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Attempts, TheWorkersRestartAndTheJobEndsWell) {
  const Folder folder;
  const Ended ended = run({"run", "-n", "2", "--max-restarts", "2", "--restart-pause", "1ms", "--log-dir",
                           folder.path(), "--job-id", "j", worker(), "heal", "1", "2"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const std::string attempt : {"0", "1", "2"}) {
    EXPECT_THAT(ended.out, HasSubstr("[1] rank 1, attempt " + attempt + " of generation " + attempt));
    EXPECT_THAT(read_file(folder.path() + "/j/attempt_" + attempt + "/rank_1/stdout.log"),
                HasSubstr("attempt " + attempt));
  }
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("[tutti] attempt 0 failed: rank 1 (pid "), HasSubstr("[tutti] restart 1 of 2 in "),
                    HasSubstr("[tutti] attempt 1 failed: rank 1 (pid "), HasSubstr("[tutti] restart 2 of 2 in "),
                    Not(HasSubstr("the job failed"))));
}

TEST(Attempts, AFailureTooManyEndsTheJobWithTheRanksCode) {
  const Ended ended =
      run({"run", "-n", "2", "--max-restarts", "1", "--restart-pause", "1ms", worker(), "heal", "0", "9"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("attempt 0 failed: rank 0"), HasSubstr("[tutti] the job failed: rank 0"),
                               HasSubstr("[tutti] the one restart is used")));
}

TEST(Attempts, NoProgressIsCode93) {
  const Ended ended =
      run({"run", "-n", "2", "--max-restarts", "50", "--restart-pause", "1ms", worker(), "heal", "0", "99"});
  EXPECT_EQ(ended.code, 93);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("restart 2 of 50"), Not(HasSubstr("restart 3 of 50")),
                               HasSubstr("no restart: the ranks failed within 10 s of their start, 3 times in a row")));
  EXPECT_EQ(
      run({"run", "--max-restarts", "4", "--restart-pause", "1ms", "--no-progress", "0", worker(), "heal", "0", "4"})
          .code,
      0);
}

TEST(Attempts, SomeCodesAreNotTriedAgain) {
  for (const std::string code : {"2", "93"}) {
    const Ended ended = run({"run", "-n", "2", "--max-restarts", "5", worker(), "heal", "0", "99", code});
    EXPECT_EQ(std::to_string(ended.code), code);
    EXPECT_THAT(ended.err, HasSubstr("no restart: exit code " + code));
  }
}

TEST(Attempts, ASignalInThePauseEndsTheJob) {
  Running running({"run", "--max-restarts", "5", "--restart-pause", "10min", worker(), "heal", "0", "99"});
  running.await_err("restart 1 of 5 in ");
  running.send(SIGTERM);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST(Attempts, TheTimeLimitIsOfTheWholeJob) {
  const Ended ended = run(
      {"run", "--timeout", "300ms", "--max-restarts", "5", "--restart-pause", "10min", worker(), "heal", "0", "99"});
  EXPECT_EQ(ended.code, 124) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the time limit of 300 ms has passed"));
}

TEST(Attempts, HelpersOfAnAttemptDoNotReachTheNext) {
  const Ended ended = run({"run", "--max-restarts", "1", "--restart-pause", "1ms", "sh", "-c",
                           "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then setsid sleep 600 & exit 3; fi; exit 0"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("ended what the ranks had left running: "));
}

// The ranks of the second attempt meet through the store of the same agent.
TEST(Attempts, TheWorldIsBuiltAgainAfterARestart) {
  const Ended ended =
      run({"run", "-n", "3", "--max-restarts", "1", "--restart-pause", "1ms", TUTTI_TEST_WORLD, "heal", "1"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("attempt 0 failed: rank 1 (pid "));
  std::size_t sums = 0;
  for (std::size_t at = 0; (at = ended.out.find(": sum 6\n", at)) != std::string::npos; ++at) ++sums;
  EXPECT_EQ(sums, 6u) << ended.out;
}

}  // namespace
}  // namespace tutti::testing
