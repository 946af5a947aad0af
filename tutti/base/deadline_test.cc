#include "tutti/base/deadline.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, OfZeroIsExpired) {
  const Deadline deadline = Deadline::after(0s);
  EXPECT_TRUE(deadline.expired());
  EXPECT_EQ(deadline.remaining(), Duration(0));
  EXPECT_EQ(deadline.poll_timeout_ms(), 0);
}

TEST(Deadline, OfAnHourIsNotExpired) {
  const Deadline deadline = Deadline::after(1h);
  EXPECT_FALSE(deadline.expired());
  EXPECT_GT(deadline.remaining(), Duration(59min));
  EXPECT_LE(deadline.remaining(), Duration(1h));
  EXPECT_DOUBLE_EQ(deadline.limit(), 3600);
}

TEST(Deadline, PollTimeoutRoundsUpSoThatPollNeverSpins) {
  const Deadline deadline = Deadline::after(1h);
  EXPECT_GE(deadline.poll_timeout_ms(), 3'599'000);
  const Deadline soon = Deadline::after(900us);
  const int left = soon.poll_timeout_ms();
  EXPECT_TRUE(left == 1 || soon.expired()) << left;
}

TEST(Deadline, PollTimeoutIsAtMostADay) { EXPECT_EQ(Deadline::after(240h).poll_timeout_ms(), 86'400'000); }

TEST(Deadline, AnAttemptTakesTheShorterLimit) {
  const Deadline whole = Deadline::after(1h);
  EXPECT_DOUBLE_EQ(whole.at_most(2s).limit(), 2);
  EXPECT_LE(whole.at_most(2h).limit(), 3600);
  EXPECT_TRUE(Deadline::after(0s).at_most(2s).expired());
}

TEST(Deadline, ErrorCarriesWaitedAndLimit) {
  const Error error = Deadline::after_seconds(30).error("rank 3 did not come", "is it started");
  EXPECT_EQ(error.code, Code::kTimeout);
  EXPECT_DOUBLE_EQ(error.limit, 30);
  EXPECT_GE(error.waited, 0);
  EXPECT_EQ(error.detail, "rank 3 did not come");
  EXPECT_EQ(error.hint, "is it started");
}

}  // namespace
}  // namespace tutti
