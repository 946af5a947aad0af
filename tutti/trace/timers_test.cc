#include "tutti/trace/timers.h"

#include <gmock/gmock.h>

#include "tests/harness/manual_stream_clock.h"
#include "tutti/base/error.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string thrown(void (*act)()) {
  try {
    act();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

TEST(Timers, AreReadInTheOrderOfTheirFirstUseAndReset) {
  Timers timers;
  for (int i = 0; i < 3; ++i) auto timing = timers.time("forward");
  { auto timing = timers.time("backward"); }
  timers["unused"];
  const auto readings = timers.take();
  ASSERT_THAT(readings, SizeIs(2));
  EXPECT_EQ(readings[0].name, "forward");
  EXPECT_EQ(readings[0].count, 3);
  EXPECT_GE(readings[0].seconds, 0);
  EXPECT_EQ(readings[1].name, "backward");
  EXPECT_THAT(timers.take(), IsEmpty());
}

TEST(Timers, OneThatRunsIsReadUpToNow) {
  Timers timers;
  Timer& timer = timers["step"];
  timer.start();
  while (timer.seconds() < 0.002) {
  }
  const auto before = now();
  const auto first = timers.take();
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_GE(first[0].seconds, 0.002);
  EXPECT_EQ(first[0].count, 0);
  timer.stop();
  const auto second = timers.take();
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].count, 1);
  EXPECT_LE(second[0].seconds, seconds_since(before)) << "what was read before is not read again";
}

TEST(Timers, StartingTwiceIsAMistake) {
  EXPECT_THAT(thrown([] {
                Timers timers;
                timers["a"].start();
                timers["a"].start();
              }),
              HasSubstr("the timer \"a\" is started, but it is already running"));
  EXPECT_THAT(thrown([] {
                Timers timers;
                timers["a"].stop();
              }),
              HasSubstr("the timer \"a\" is stopped, but it is not running"));
}

TEST(Timers, OverRanks) {
  const auto timers =
      spread({{{"forward", 1.0, 1}, {"only here", 0.5, 1}}, {{"forward", 4.0, 1}}, {{"forward", 1.0, 1}}});
  ASSERT_THAT(timers, SizeIs(2));
  EXPECT_EQ(timers[0].name, "forward");
  EXPECT_EQ(timers[0].least, 1.0);
  EXPECT_EQ(timers[0].most, 4.0);
  EXPECT_EQ(timers[0].mean, 2.0);
  EXPECT_EQ(timers[0].slowest, 1);
  EXPECT_EQ(timers[0].ranks, 3);
  EXPECT_EQ(timers[1].ranks, 1);
  EXPECT_EQ(timers[1].mean, 0.5);
  EXPECT_EQ(spread_text(timers),
            "(min, max) time across ranks (ms):\n"
            "    forward ........................................: (1000.00, 4000.00)\n"
            "    only here ......................................: (500.00, 500.00)\n");
}

TEST(Timers, OfAGpuMeasureWhatHasRunAndWaitForNothing) {
  const auto stream = std::make_shared<test::ManualStreamClock>();
  Timers timers(stream);
  const auto forward = [&](int of) {
    auto timing = timers.time("forward");
    stream->put(std::chrono::seconds(of));
  };
  forward(2);
  EXPECT_THAT(timers.take(), IsEmpty());
  stream->run();
  stream->put(std::chrono::seconds(100));
  forward(3);
  { auto timing = Timers::Timing(timers.on_host("data")); }
  auto readings = timers.take();
  ASSERT_THAT(readings, SizeIs(2));
  EXPECT_DOUBLE_EQ(readings[0].seconds, 2);
  EXPECT_EQ(readings[0].count, 1);
  EXPECT_EQ(readings[1].name, "data");
  timers["forward"].start();
  stream->run();
  readings = timers.take();
  ASSERT_THAT(readings, SizeIs(1)) << "one that runs is read when it has ended";
  EXPECT_DOUBLE_EQ(readings[0].seconds, 3);
  timers["forward"].stop();
}

}  // namespace
}  // namespace tutti
