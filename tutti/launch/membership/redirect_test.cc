#include "tutti/launch/membership/redirect.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <vector>

#include "tests/harness/eventually.h"
#include "tutti/launch/membership/keys.h"
#include "tutti/store/server/server.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

using std::chrono::seconds;

const Address kAnyPort{.host = "127.0.0.1"}, kHere{.host = "10.0.0.2", .port = 29400};
const Credentials kSignpostJob{.secret = Secret::from_text("open sesame"), .job = "job"};

std::string sign_in(StoreServer& server) {
  return server.local()->get(keys::kMoved, Deadline::after(seconds(60))).or_throw();
}

TEST(Redirect, TellsWhoComesToTheOldPlaceOnce) {
  const Address former = listen(kAnyPort).or_throw().address;
  std::atomic<int> said = 0;
  std::optional<Redirect> post;
  post.emplace(std::vector{former}, kHere, kSignpostJob, [&](const std::string&) { ++said; });
  const auto server = StoreServer::start(former, kSignpostJob).or_throw();
  EXPECT_EQ(sign_in(*server), "10.0.0.2:29400");
  EXPECT_TRUE(test::eventually([&] { return server->counts().let_in >= 2; })) << "it looks again";
  post.reset();  // after that look
  EXPECT_EQ(said, 1);
}

TEST(Redirect, ASignThatHasGrownOldIsRenewed) {
  const auto server = StoreServer::start(kAnyPort, kSignpostJob).or_throw();
  server->local()->set(keys::kMoved, "10.0.0.9:1").or_throw();
  std::promise<void> said;
  const Redirect post({server->address()}, kHere, kSignpostJob, [&](const std::string&) { said.set_value(); });
  EXPECT_EQ(said.get_future().wait_for(seconds(60)), std::future_status::ready);
  EXPECT_EQ(sign_in(*server), "10.0.0.2:29400");
}

// We may be the one that was taken over from.
TEST(Redirect, AStoreThatTookOverIsLeftAlone) {
  const auto server = StoreServer::start(kAnyPort, kSignpostJob).or_throw();
  server->local()->set(keys::kFormer, to_string(kHere)).or_throw();
  const auto calls = server->counts().calls;
  const Redirect post({server->address()}, kHere, kSignpostJob, [](const std::string&) {});
  ASSERT_TRUE(test::eventually([&] { return server->counts().calls >= calls + 2; }));
  EXPECT_FALSE(server->peek(keys::kMoved).has_value());
}

TEST(Redirect, AnotherJobIsNoneOfItsBusiness) {
  const auto server =
      StoreServer::start(kAnyPort, {.secret = Secret::from_text("open sesame"), .job = "other"}).or_throw();
  // A store that is left alone shows how often the post looks.
  const auto ours = StoreServer::start(kAnyPort, kSignpostJob).or_throw();
  ours->local()->set(keys::kFormer, to_string(kHere)).or_throw();
  const Redirect post({server->address(), ours->address()}, kHere, kSignpostJob, [](const std::string&) {});
  ASSERT_TRUE(test::eventually([&] { return ours->counts().let_in >= 3; }));
  EXPECT_GE(server->counts().turned_away, 1u);
  EXPECT_LE(server->counts().turned_away, 2u) << "and is not asked again and again";
  EXPECT_FALSE(server->peek(keys::kMoved).has_value());
}

}  // namespace
}  // namespace tutti
