// When silence means something, and when a closed connection does.
#include "tutti/store/server/replication.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tutti/transport/socket.h"

namespace tutti::store {
namespace {

using std::chrono::milliseconds;

Clock::time_point at(int ms) { return Clock::time_point(std::chrono::hours(1)) + milliseconds(ms); }

TEST(Contact, NothingIsProvenBeforeTheFirstEcho) {
  Contact contact;
  EXPECT_FALSE(contact.closing_proves_exit(at(0)));
  contact.on_heartbeat({.count = 0, .stamp = 5, .echo = 0}, at(1));
  EXPECT_FALSE(contact.closing_proves_exit(at(2)));
}

TEST(Contact, AClosedConnectionProvesAnExitWhileTheEchoIsFresh) {
  Contact here, there;
  there.on_heartbeat(here.next_heartbeat(0, at(0)), at(400));
  here.on_heartbeat(there.next_heartbeat(0, at(400)), at(800));
  EXPECT_TRUE(here.closing_proves_exit(at(2499)));
  EXPECT_FALSE(here.closing_proves_exit(at(2500))) << "counted from when the echoed heartbeat was sent";
}

TEST(Contact, AnEchoThatTookLongProvesNothing) {
  Contact here, there;
  there.on_heartbeat(here.next_heartbeat(0, at(0)), at(10));
  here.on_heartbeat(there.next_heartbeat(0, at(10)), at(5000));
  EXPECT_FALSE(here.closing_proves_exit(at(5001)));
}

// Whatever the delays: if one side may decide, the other's closed connection proves nothing.
TEST(Contact, NeverBoth) {
  for (int sent = 0; sent < 4000; sent += 250)
    for (int heard = sent; heard < 8000; heard += 250) {
      Contact here, there;
      there.on_heartbeat(here.next_heartbeat(0, at(sent)), at(heard));
      const wire::Heartbeat echo = there.next_heartbeat(0, at(heard));
      for (int decided = heard; decided < 10000; decided += 250) {
        if (there.heard_too_recently(at(decided))) continue;
        Contact told = here;
        told.on_heartbeat(echo, at(decided));
        EXPECT_FALSE(told.closing_proves_exit(at(decided)));
        break;
      }
    }
}

// A connection that the primary has not accepted when it ends is reset, which may show while it is made.
TEST(PrimaryIsGone, AlsoWhereItEndsWhileItIsAsked) {
  for (int round = 0; round < 100; ++round) {
    auto listener = std::optional(listen(transport::Address{.host = "127.0.0.1"}).or_throw());
    const transport::Address address = listener->address;
    std::thread primary([&] {
      // So that the end comes at other moments of the connection.
      for (int turn = 0; turn < round * 50; ++turn) std::atomic_signal_fence(std::memory_order_seq_cst);
      listener.reset();
    });
    EXPECT_TRUE(is_gone(address));
    primary.join();
  }
}

}  // namespace
}  // namespace tutti::store
