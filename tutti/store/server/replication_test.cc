// When silence means something, and when a closed connection does.
#include "tutti/store/server/replication.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using std::chrono::milliseconds;

Clock::time_point at(int ms) { return Clock::time_point(std::chrono::hours(1)) + milliseconds(ms); }

TEST(Touch, NothingIsProvenBeforeTheFirstEcho) {
  Touch touch;
  EXPECT_FALSE(touch.closing_proves_death(at(0)));
  touch.heard({.count = 0, .stamp = 5, .echo = 0}, at(1));
  EXPECT_FALSE(touch.closing_proves_death(at(2)));
}

TEST(Touch, AClosedConnectionProvesDeathWhileTheEchoIsFresh) {
  Touch here, there;
  there.heard(here.next_beat(0, at(0)), at(400));
  here.heard(there.next_beat(0, at(400)), at(800));
  EXPECT_TRUE(here.closing_proves_death(at(2499)));
  EXPECT_FALSE(here.closing_proves_death(at(2500))) << "counted from when the beat that was echoed was sent";
}

TEST(Touch, AnEchoThatTookLongProvesNothing) {
  Touch here, there;
  there.heard(here.next_beat(0, at(0)), at(10));
  here.heard(there.next_beat(0, at(10)), at(5000));
  EXPECT_FALSE(here.closing_proves_death(at(5001)));
}

// Whatever the delays: if one side may decide, the other's closed connection proves nothing.
TEST(Touch, NeverBoth) {
  for (int sent = 0; sent < 4000; sent += 250)
    for (int heard = sent; heard < 8000; heard += 250) {
      Touch here, there;
      there.heard(here.next_beat(0, at(sent)), at(heard));
      const Beat echo = there.next_beat(0, at(heard));
      for (int decided = heard; decided < 10000; decided += 250) {
        if (there.heard_too_lately(at(decided))) continue;
        Touch told = here;
        told.heard(echo, at(decided));
        EXPECT_FALSE(told.closing_proves_death(at(decided)));
        break;
      }
    }
}

}  // namespace
}  // namespace tutti
