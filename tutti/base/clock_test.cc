#include "tutti/base/clock.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::MatchesRegex;

TEST(Clock, ConvertsSecondsBothWays) {
  EXPECT_EQ(from_seconds(1.5), Duration(1'500'000'000));
  EXPECT_DOUBLE_EQ(to_seconds(std::chrono::milliseconds(250)), 0.25);
  EXPECT_EQ(from_seconds(300), std::chrono::minutes(5));
}

TEST(Clock, AnyNumberOfSecondsFits) {
  const Duration century = std::chrono::hours(24 * 36525);
  for (const double seconds : {4e9, 9.3e9, 1e18, 1e300}) {
    EXPECT_EQ(from_seconds(seconds), century) << seconds;
    EXPECT_EQ(from_seconds(-seconds), -century) << seconds;
    EXPECT_GT(now() + from_seconds(seconds), now()) << seconds;
  }
  EXPECT_EQ(from_seconds(3e9), std::chrono::seconds(3'000'000'000));
}

TEST(Clock, NeverRunsBackwards) {
  auto last = now();
  for (int i = 0; i < 1000; ++i) {
    const auto next = now();
    ASSERT_GE(next, last);
    last = next;
  }
  EXPECT_GE(seconds_since(last), 0);
}

TEST(Clock, WallClockHasDateTimeAndMilliseconds) {
  EXPECT_THAT(wall_clock_text(),
              MatchesRegex("[0-9]+-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9][.][0-9][0-9][0-9]"));
}

}  // namespace
}  // namespace tutti
