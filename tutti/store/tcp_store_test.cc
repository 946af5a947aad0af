// The client and the server together: what is special to a connection. The verbs themselves: tests/conformance.
#include "tutti/store/tcp_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/conformance/store_conformance.h"
#include "tutti/store/server/server.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Deadline soon_over_tcp() { return Deadline::after_seconds(60); }
transport::Credentials tcp_credentials() {
  return {.secret = transport::Secret::from_text("open sesame"), .job = "job"};
}

class TcpWorld : public StoreWorld {
 public:
  std::unique_ptr<Store> open() override {
    return TcpStore::connect(server_->address(), tcp_credentials(), 0, soon_over_tcp()).or_throw();
  }

 private:
  std::unique_ptr<StoreServer> server_ = StoreServer::start({.host = "127.0.0.1"}, tcp_credentials()).or_throw();
};

// The host's own handle and a connection, in turn.
class MixedWorld : public StoreWorld {
 public:
  std::unique_ptr<Store> open() override {
    if (count_.fetch_add(1) % 2 == 0) return server_->local();
    return TcpStore::connect(server_->address(), tcp_credentials(), 0, soon_over_tcp()).or_throw();
  }

 private:
  std::unique_ptr<StoreServer> server_ = StoreServer::start({.host = "127.0.0.1"}, tcp_credentials()).or_throw();
  std::atomic<int> count_ = 0;
};

const StoreMaker kTcp{"Tcp", [] { return std::make_unique<TcpWorld>(); }},
    kMixed{"TcpAndLocal", [] { return std::make_unique<MixedWorld>(); }};
INSTANTIATE_TEST_SUITE_P(OverTcp, StoreConformance, testing::Values(kTcp, prefixed(kTcp), kMixed), name_of_store);

class TcpStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = StoreServer::start({.host = "127.0.0.1"}, tcp_credentials());
    ASSERT_TRUE(server.ok()) << to_string(server.error());
    server_ = *std::move(server);
  }
  std::unique_ptr<TcpStore> client(int rank = -1) {
    return TcpStore::connect(server_->address(), tcp_credentials(), rank, soon_over_tcp()).or_throw();
  }

  std::unique_ptr<StoreServer> server_;
};

TEST_F(TcpStoreTest, ClientAndServerSeeOneTable) {
  auto store = client();
  const auto local = server_->local();
  store->set("a", "1").or_throw();
  EXPECT_EQ(local->get("a", soon_over_tcp()).or_throw(), "1");
  local->set("b", std::string(3 << 20, 'x')).or_throw();
  EXPECT_EQ(store->get("b", soon_over_tcp()).or_throw().size(), 3u << 20);
  EXPECT_EQ(server_->counts().let_in, 1u);
}

TEST_F(TcpStoreTest, BarrierWithTheServersOwnProcessReachesTheClientEvenIfTheServerEndsAtOnce) {
  auto store = client();
  std::thread other([&] { store->barrier("end", 1, 2, soon_over_tcp()).or_throw(); });
  server_->local()->barrier("end", 0, 2, soon_over_tcp()).or_throw();
  server_.reset();
  other.join();
}

TEST_F(TcpStoreTest, LostServerIsNamedAndStaysLost) {
  auto store = client();
  const std::string address = to_string(server_->address());
  std::thread stopper([&] {
    while (server_->counts().calls == 0) std::this_thread::yield();
    server_.reset();
  });
  const auto value = store->get("never", soon_over_tcp());
  stopper.join();
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, Code::kPeerLost);
  EXPECT_THAT(to_string(value.error()), HasSubstr("get \"never\": the store at " + address + " closed the connection"));
  EXPECT_EQ(store->set("a", "b").error().code, Code::kPeerLost);
}

TEST_F(TcpStoreTest, LocalWaitsEndWithTheServer) {
  const auto local = server_->local();
  std::thread stopper([&] { server_.reset(); });
  const auto value = local->get("never", soon_over_tcp());
  stopper.join();
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, Code::kAborted);
}

TEST_F(TcpStoreTest, TimedOutCallLeavesTheConnectionUsable) {
  auto store = client();
  const auto late = store->get("late", Deadline::after_seconds(0.01));
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(to_string(late.error()), HasSubstr("Timeout: get \"late\": the key was not set after"));
  store->set("late", "now").or_throw();
  EXPECT_EQ(store->get("late", soon_over_tcp()).or_throw(), "now");
}

TEST_F(TcpStoreTest, RankThatIsGoneIsMissingAgain) {
  auto leaving = client(1);
  std::thread gone([&] { EXPECT_FALSE(leaving->barrier("b", 1, 3, Deadline::after_seconds(0.05)).ok()); });
  gone.join();
  const auto status = client(0)->barrier("b", 0, 3, Deadline::after_seconds(0.05));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(to_string(status.error()), HasSubstr("barrier \"b\", rank 0: ranks 1, 2 of 3 did not arrive after"));
}

TEST_F(TcpStoreTest, SecondProcessOfOneRankIsNamedAndTheFirstIsNotHarmed) {
  std::thread first([&] { client(1)->barrier("b", 1, 2, soon_over_tcp()).or_throw(); });
  while (server_->counts().calls == 0) std::this_thread::yield();
  const auto twice = client(1)->barrier("b", 1, 2, soon_over_tcp());
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(
      to_string(twice.error()),
      HasSubstr("Mismatch: barrier \"b\", rank 1: rank 1 has entered already: two processes have the same rank"));
  client(0)->barrier("b", 0, 2, soon_over_tcp()).or_throw();
  first.join();
}

TEST_F(TcpStoreTest, WatchBecomesReadableWhenTheKeyIsSet) {
  auto store = client();
  auto watch = store->watch("fault", soon_over_tcp()).or_throw();
  EXPECT_FALSE(watch.try_read().has_value());
  store->set("fault", "rank 3 crashed").or_throw();
  ASSERT_TRUE(transport::wait_readable(watch.fd(), soon_over_tcp()).or_throw());
  const auto value = watch.try_read();
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(**value, "rank 3 crashed");
}

TEST_F(TcpStoreTest, AWatchReportsThatTheServerIsGone) {
  auto watch = client()->watch("fault", soon_over_tcp()).or_throw();
  server_.reset();
  ASSERT_TRUE(transport::wait_readable(watch.fd(), soon_over_tcp()).or_throw());
  const auto value = watch.try_read();
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->error().code, Code::kPeerLost);
}

TEST_F(TcpStoreTest, ManyClientsGather) {
  constexpr int kRanks = 7;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      auto store = client(rank);
      for (int round = 0; round < 20; ++round) {
        const auto values =
            store->gather_all("round", rank, kRanks, std::to_string(rank * 100 + round), soon_over_tcp()).or_throw();
        for (int i = 0; i < kRanks; ++i) EXPECT_EQ(values[std::size_t(i)], std::to_string(i * 100 + round));
      }
    });
  for (auto& rank : ranks) rank.join();
}

TEST_F(TcpStoreTest, CloneWaitsWhileTheOriginalWorks) {
  auto store = client();
  const auto copy = store->clone(soon_over_tcp()).or_throw();
  std::thread waiter([&] { EXPECT_EQ(copy->get("k", soon_over_tcp()).or_throw(), "v"); });
  store->set("k", "v").or_throw();
  waiter.join();
}

TEST_F(TcpStoreTest, TheSameTableAtAUnixSocketForTheSameSecret) {
  const transport::Address address = server_->unix_address().or_throw();
  EXPECT_EQ(server_->unix_address().or_throw(), address);
  auto store = TcpStore::connect(address, tcp_credentials(), 0, soon_over_tcp()).or_throw();
  store->set("a", "b").or_throw();
  EXPECT_EQ(client()->get("a", soon_over_tcp()).or_throw(), "b");
  const auto guess = TcpStore::connect(
      address, {.secret = transport::Secret::from_text("guess"), .job = tcp_credentials().job}, 0, soon_over_tcp());
  ASSERT_FALSE(guess.ok());
  EXPECT_THAT(to_string(guess.error()), HasSubstr("Refused: the store at unix:@tutti-"));
  EXPECT_THAT(to_string(guess.error()), HasSubstr("holds another secret"));
  server_.reset();
  EXPECT_EQ(store->get("a", soon_over_tcp()).status().error().code, Code::kPeerLost);
  EXPECT_EQ(connect(address, soon_over_tcp()).status().error().errno_value, ECONNREFUSED)
      << "nobody listens there any more";
}

// The secret is not all that it takes: the name is for everybody to see.
TEST_F(TcpStoreTest, AnotherUserIsNotLetInAtTheUnixSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const transport::Address address = server_->unix_address().or_throw();
  const transport::Address tcp = server_->address();
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    const auto at = [&](const transport::Address& place) {
      return TcpStore::connect(place, tcp_credentials(), 0, soon_over_tcp()).status();
    };
    const Status refused = at(address), let_in = at(tcp);
    const char word = refused.ok() ? 'x' : refused.error().code == Code::kPeerLost && let_in.ok() ? '!' : '?';
    (void)!::write(told[1], &word, 1);
    ::_exit(0);
  }
  char byte = 0;
  EXPECT_EQ(::read(told[0], &byte, 1), 1);
  EXPECT_EQ(byte, '!') << "x: it was let in";
  ::waitpid(stranger, nullptr, 0);
  for (const int fd : told) ::close(fd);
}

TEST_F(TcpStoreTest, ForeignJobWrongSecretAndOldGenerationAreDifferentErrors) {
  const auto refusal = [&](transport::Credentials other) {
    const auto store = TcpStore::connect(server_->address(), other, 0, soon_over_tcp());
    return store.ok() ? std::string("let in") : to_string(store.error());
  };
  const std::string where = "Refused: the store at " + to_string(server_->address());
  EXPECT_THAT(refusal({.secret = tcp_credentials().secret, .job = "another"}),
              HasSubstr(where + " belongs to another job"));
  EXPECT_THAT(refusal({.secret = transport::Secret::from_text("guess"), .job = "job"}),
              HasSubstr(where + " holds another secret (ours has fingerprint "));
  EXPECT_THAT(refusal({.secret = transport::Secret::none(), .job = "job"}),
              HasSubstr(where + " requires the job's secret"));
  EXPECT_THAT(refusal({.secret = tcp_credentials().secret, .job = "job", .generation = 3}),
              HasSubstr(where + " is at generation 0 of the job, this process belongs to generation 3"));
}

TEST_F(TcpStoreTest, ClientThatCameFirstWaitsForTheServer) {
  const transport::Address address{.path = testing::TempDir() + "tutti_late_" + std::to_string(::getpid())};
  std::thread late([&] { server_ = StoreServer::start(address, tcp_credentials()).or_throw(); });
  auto store = TcpStore::connect(address, tcp_credentials(), 0, soon_over_tcp());
  late.join();
  ASSERT_TRUE(store.ok()) << to_string(store.error());
}

}  // namespace
}  // namespace tutti
