#include "tutti/launch/attempts/outcome.h"

#include <gmock/gmock.h>

#include <csignal>

namespace tutti {
namespace {

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

TEST(Outcome, WhoSavedIsTold) {
  const std::vector ends = {with_code(0, 75), with_code(1, 0), with_code(2, 75)};
  EXPECT_EQ(saved_words(ends, true),
            "ranks 0, 2 left with code 75: what they had is saved, and the job can be started again");
  EXPECT_THAT(saved_words(ends, false), testing::EndsWith("again (nobody told it to stop here)"));
}

}  // namespace
}  // namespace tutti
