#include "tutti/launch/membership/key_watch.h"

#include <gmock/gmock.h>
#include <poll.h>

#include "tutti/store/memory_store.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"

namespace tutti::launch::membership {
namespace {

using std::chrono::seconds;

const transport::Address kWatchedAddress{.host = "127.0.0.1"};
const transport::Credentials kWatchedJob{.secret = transport::Secret::from_text("open sesame"), .job = "job"};
Deadline soon_watched() { return Deadline::after(seconds(60)); }

bool rings(const KeyWatch& watch) {
  pollfd fd{watch.fd(), POLLIN, 0};
  return poll(&fd, 1, 60'000) == 1;
}

TEST(KeyWatch, OfAnyStoreReturnsTheValueOnce) {
  MemoryStore store;
  const auto watch = KeyWatch::open(store, "k", soon_watched()).or_throw();
  EXPECT_FALSE(watch->try_read().has_value());
  store.set("k", "v").or_throw();
  EXPECT_TRUE(rings(*watch));
  EXPECT_EQ(watch->try_read().value().or_throw(), "v");
}

TEST(KeyWatch, EndsWhileItWaits) {
  MemoryStore store;
  KeyWatch::open(store, "k", soon_watched()).or_throw().reset();
}

TEST(KeyWatch, OfAServerReturnsTheValue) {
  const auto server = StoreServer::start(kWatchedAddress, kWatchedJob).or_throw();
  const auto store = TcpStore::connect(server->address(), kWatchedJob, 0, soon_watched()).or_throw();
  const auto watch = KeyWatch::open(*store, "k", soon_watched()).or_throw();
  EXPECT_FALSE(watch->try_read().has_value());
  store->set("k", "v").or_throw();
  EXPECT_TRUE(rings(*watch));
  EXPECT_EQ(watch->try_read().value().or_throw(), "v");
}

// What ends a round must be told at once: that another server may take over is no reason to wait for it here.
TEST(KeyWatch, ReportsALostServerAtOnceEvenIfItHasAFollower) {
  auto server = StoreServer::start(kWatchedAddress, kWatchedJob).or_throw();
  const auto follower = StoreServer::follow(kWatchedAddress, kWatchedJob, server->address(), soon_watched()).or_throw();
  const auto store =
      TcpStore::connect({follower->address(), server->address()}, kWatchedJob, 0, soon_watched()).or_throw();
  const auto watch = KeyWatch::open(*store, "k", soon_watched()).or_throw();
  server.reset();
  EXPECT_TRUE(rings(*watch));
  const auto told = watch->try_read();
  ASSERT_TRUE(told.has_value());
  ASSERT_FALSE(told->ok());
  EXPECT_EQ(told->error().code, Code::kPeerLost);
}

}  // namespace
}  // namespace tutti::launch::membership
