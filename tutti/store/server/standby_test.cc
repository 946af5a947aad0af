// A primary and its standby: one ends, is killed, falls silent, or only loses the connection.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/conformance/store_conformance.h"
#include "tests/harness/eventually.h"
#include "tests/harness/store_wire.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

using test::eventually;
using test::StoreWire;
using testing::ElementsAre;
using testing::HasSubstr;

const transport::Address kAny{.host = "127.0.0.1"};
transport::Credentials credentials() {
  return {.secret = transport::Secret::from_text("open sesame, said the store"), .job = "job"};
}
Deadline soon_with_standby() { return Deadline::after_seconds(60); }

template <class T>
std::string text_of_value(const T& result) {
  return result.ok() ? "ok" : to_string(result.error());
}

std::unique_ptr<TcpStore> client(std::vector<transport::Address> servers) {
  return TcpStore::connect(std::move(servers), credentials(), 0, soon_with_standby()).or_throw();
}

// The suite of all stores over a primary with a standby: nothing else changes for a client.
class FollowedWorld : public StoreWorld {
 public:
  std::unique_ptr<Store> open() override {
    if (count_.fetch_add(1) % 3 == 2) return primary_->local();
    return client({standby_->address(), primary_->address()});
  }

 private:
  std::unique_ptr<StoreServer> primary_ = StoreServer::start(kAny, credentials()).or_throw();
  std::unique_ptr<StoreServer> standby_ =
      StoreServer::follow(kAny, credentials(), primary_->address(), soon_with_standby()).or_throw();
  std::atomic<int> count_ = 0;
};
const StoreMaker kFollowed{"Followed", [] { return std::make_unique<FollowedWorld>(); }};
INSTANTIATE_TEST_SUITE_P(Followed, StoreConformance, testing::Values(kFollowed), name_of_store);

class StoreStandby : public testing::Test {
 protected:
  void follow(const transport::Address& through) {
    standby_ = StoreServer::follow(kAny, credentials(), through, soon_with_standby()).or_throw();
  }
  void SetUp() override { primary_ = StoreServer::start(kAny, credentials()).or_throw(); }
  std::vector<transport::Address> both() const { return {primary_->address(), standby_->address()}; }

  std::unique_ptr<StoreServer> primary_, standby_;
};

TEST_F(StoreStandby, HasWhatWasThereAndWhatCameLater) {
  const auto before = primary_->local();
  before->set("old", "1").or_throw();
  before->push("queue", "a").or_throw();
  before->push("queue", "b").or_throw();
  follow(primary_->address());
  const auto store = client(both());
  store->set("new", "2").or_throw();
  EXPECT_EQ(store->add("n", 5).or_throw(), 5);
  EXPECT_EQ(store->pop("queue", soon_with_standby()).or_throw(), "a");
  before->append("old", "+").or_throw();
  EXPECT_TRUE(store->remove("new").or_throw());
  primary_.reset();
  EXPECT_EQ(store->get("old", soon_with_standby()).or_throw(), "1+");
  EXPECT_EQ(store->add("n", 1).or_throw(), 6);
  EXPECT_EQ(store->pop("queue", soon_with_standby()).or_throw(), "b");
  EXPECT_FALSE(store->check({"new"}).or_throw());
  EXPECT_EQ(standby_->role(), StoreRole::kPrimary);
  EXPECT_EQ(store->server(), standby_->address());
  EXPECT_EQ(standby_->local()->get("old", soon_with_standby()).or_throw(), "1+");
}

TEST_F(StoreStandby, DoesNotServeBeforeThat) {
  follow(primary_->address());
  EXPECT_EQ(standby_->role(), StoreRole::kStandby);
  const auto local = standby_->local()->set("k", "v");
  EXPECT_THAT(text_of_value(local), HasSubstr("this store follows the one at " + to_string(primary_->address()) +
                                              " and does not serve (hint: ask that one)"));
  const auto found = client({standby_->address(), primary_->address()});
  found->set("k", "v").or_throw();
  EXPECT_EQ(found->server(), primary_->address());
}

TEST_F(StoreStandby, OneIsEnough) {
  follow(primary_->address());
  const auto second = StoreServer::follow(kAny, credentials(), primary_->address(), soon_with_standby());
  EXPECT_THAT(text_of_value(second), HasSubstr("already has a standby"));
  const auto of_standby = StoreServer::follow(kAny, credentials(), standby_->address(), soon_with_standby());
  EXPECT_THAT(text_of_value(of_standby), HasSubstr("does not serve itself (hint: follow the one that does)"));
  standby_.reset();  // a place is free again, and the primary serves on
  primary_->local()->set("k", "v").or_throw();
  EXPECT_TRUE(eventually([&] {
    auto third = StoreServer::follow(kAny, credentials(), primary_->address(), soon_with_standby());
    if (third.ok()) standby_ = *std::move(third);
    return standby_ != nullptr;
  }));
  primary_.reset();
  EXPECT_EQ(client({standby_->address(), standby_->address()})->get("k", soon_with_standby()).or_throw(), "v");
}

TEST_F(StoreStandby, CallsThatWaitGoOverToIt) {
  follow(primary_->address());
  std::vector<std::thread> ranks;
  std::atomic<int> waiting = 0;
  std::vector<std::string> got(4);
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      const auto store = client(both());
      ++waiting;
      if (rank == 0) got[0] = store->get("late", soon_with_standby()).or_throw();
      if (rank == 1) got[1] = store->pop("queue", soon_with_standby()).or_throw();
      if (rank >= 2)
        got[std::size_t(rank)] = store->gather_all("g", rank - 2, 3, "v", soon_with_standby()).or_throw()[2];
    });
  const auto store = client(both());
  auto watch = store->watch("watched", soon_with_standby()).or_throw();
  EXPECT_TRUE(eventually([&] { return waiting == 4 && primary_->counts().calls >= 5; }));
  primary_.reset();
  store->set("late", "1").or_throw();
  store->push("queue", "2").or_throw();
  EXPECT_EQ(store->gather_all("g", 2, 3, "last", soon_with_standby()).or_throw()[2], "last");
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(got, ElementsAre("1", "2", "last", "last"));
  EXPECT_FALSE(watch.try_read().has_value());
  store->set("watched", "3").or_throw();
  std::optional<Result<std::string>> seen;
  EXPECT_TRUE(eventually([&] { return (seen = watch.try_read()).has_value(); }));
  EXPECT_EQ(std::move(*seen).or_throw(), "3");
}

// The primary as a process, killed in the middle of everything; then the clients count.
TEST_F(StoreStandby, NoChangeIsLostOrMadeTwiceWhenThePrimaryIsKilled) {
  constexpr int kClients = 4, kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    primary_.reset();
    standby_.reset();
    int pipe[2];
    ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    const pid_t parent = ::getpid(), pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto server = StoreServer::start(kAny, credentials()).or_throw();
      const std::uint16_t port = server->address().port;
      if (::getppid() != parent || ::write(pipe[1], &port, sizeof port) != sizeof port) ::_exit(1);
      for (;;) ::pause();
    }
    transport::Address primary = kAny;
    ASSERT_EQ(::read(pipe[0], &primary.port, sizeof primary.port), ssize_t(sizeof primary.port));
    ::close(pipe[0]);
    ::close(pipe[1]);
    follow(primary);
    std::atomic<bool> stop = false;
    std::atomic<int> added = 0, popped = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i)
      clients.emplace_back([&, i] {
        const auto store = client({primary, standby_->address()});
        const std::string own = std::to_string(i);
        for (int n = 1; !stop || n < 100; ++n) {
          EXPECT_EQ(store->add("own" + own, 1).or_throw(), n);
          store->add("all", 1).or_throw();
          ++added;
          store->push("queue", own).or_throw();
          store->pop("queue", soon_with_standby()).or_throw();
          ++popped;
          EXPECT_EQ(store
                        ->compare_set("c" + own, n == 1 ? std::nullopt : std::optional(std::to_string(n - 1)),
                                      std::to_string(n))
                        .or_throw()
                        .stored,
                    true);
        }
      });
    EXPECT_TRUE(eventually([&] { return added > 200 + round * 37; }));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    const int at_death = added;
    EXPECT_TRUE(eventually([&] { return added > at_death + 200; }));
    stop = true;
    for (auto& one : clients) one.join();
    EXPECT_EQ(standby_->role(), StoreRole::kPrimary);
    EXPECT_EQ(standby_->local()->add("all", 0).or_throw(), added);
    EXPECT_EQ(standby_->local()->queue_length("queue").or_throw(), 0);
  }
}

TEST_F(StoreStandby, SilenceIsDecidedForTheStandby) {
  StoreWire wire(primary_->address());
  follow(wire.address());
  const auto store = client(both());
  EXPECT_EQ(store->add("n", 1).or_throw(), 1);
  EXPECT_THAT(text_of_value(standby_->serve_alone()), HasSubstr("Refused: the other store was heard "));
  wire.silence(true);
  const auto pending = primary_->local()->clone(soon_with_standby()).or_throw();
  pending->set_call_timeout(std::chrono::milliseconds(200));
  EXPECT_THAT(text_of_value(pending->set("k", "v")),
              HasSubstr("it was carried out here, but the store's standby has not confirmed it"));
  EXPECT_TRUE(eventually([&] { return standby_->serve_alone().ok(); }));
  EXPECT_TRUE(eventually([&] { return standby_->role() == StoreRole::kPrimary; }));
  EXPECT_EQ(store->add("n", 1).or_throw(), 2);  // asked the silent one first, then found the other
  EXPECT_EQ(store->server(), standby_->address());
  EXPECT_FALSE(store->check({"k"}).or_throw()) << "nobody was told that it had been stored";
  wire.silence(false);
  EXPECT_TRUE(eventually([&] { return primary_->role() == StoreRole::kDemoted; }));
  EXPECT_THAT(text_of_value(primary_->local()->set("k", "v")),
              HasSubstr("no longer serves: its standby has taken over, because this store could not be reached"));
  EXPECT_THAT(text_of_value(primary_->serve_alone()), HasSubstr("was replaced by the other"));
}

TEST_F(StoreStandby, SilenceIsDecidedForThePrimary) {
  StoreWire wire(primary_->address());
  follow(wire.address());
  const auto store = client({primary_->address()});
  store->set("before", "1").or_throw();
  wire.silence(true);
  std::thread setter([&] { store->set("after", "2").or_throw(); });
  EXPECT_TRUE(eventually([&] { return primary_->serve_alone().ok(); }));
  setter.join();
  EXPECT_EQ(primary_->local()->get("after", soon_with_standby()).or_throw(), "2");
  wire.silence(false);
  EXPECT_TRUE(eventually([&] { return standby_->role() == StoreRole::kDemoted; }));
  EXPECT_THAT(text_of_value(standby_->serve_alone()), HasSubstr("was replaced by the other"));
}

TEST_F(StoreStandby, ATornConnectionAloneDoesNotMakeTwoPrimaries) {
  StoreWire wire(primary_->address());
  follow(wire.address());
  const auto store = client(both());
  store->set("k", "v").or_throw();
  // Let the two be in touch, so that the primary may go on by itself.
  EXPECT_TRUE(eventually([&] { return store->add("n", 1).or_throw() > 50; }));
  wire.tear();
  EXPECT_TRUE(eventually([&] { return standby_->role() == StoreRole::kDemoted; }));
  EXPECT_THAT(text_of_value(standby_->local()->set("k", "x")), HasSubstr("was cut while the primary was running"));
  EXPECT_EQ(primary_->role(), StoreRole::kPrimary);
  store->set("k", "w").or_throw();
  EXPECT_EQ(store->server(), primary_->address());
}

TEST_F(StoreStandby, NeitherServes) {
  follow(primary_->address());
  const auto servers = both();
  const auto store = client(servers);
  primary_.reset();
  standby_.reset();
  const Status lost = TcpStore::connect(servers, credentials(), 0, Deadline::after_seconds(0.3)).status();
  EXPECT_THAT(text_of_value(lost), HasSubstr("no store serves at " + to_string(servers) + " (cannot connect to "));
  EXPECT_EQ(lost.error().code, Code::kUnreachable);
}

TEST(Servers, AsText) {
  const auto servers = parse_servers("10.0.0.1:4000, [::1]:5").or_throw();
  EXPECT_EQ(to_string(servers), "10.0.0.1:4000,[::1]:5");
  EXPECT_FALSE(parse_servers("").ok());
}

}  // namespace
}  // namespace tutti
