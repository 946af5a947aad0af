// The server against clients that mean no good, or are broken. A victim works on beside them.
#include "tutti/store/server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "tests/harness/limits.h"
#include "tutti/store/request.h"
#include "tutti/store/tcp_store.h"
#include "tutti/store/wire.h"
#include "tutti/transport/crypto.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

using testing::HasSubstr;

Deadline soon() { return Deadline::after_seconds(90); }
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

class StoreServerTest : public testing::Test {
 protected:
  std::unique_ptr<TcpStore> victim() {
    return TcpStore::connect(server_->address(), credentials_, 0, soon()).or_throw();
  }
  Fd stranger() { return connect(server_->address(), soon()).or_throw(); }
  // Past the handshake, then free to send anything.
  Fd insider() {
    Fd fd = stranger();
    transport::handshake_as_client(fd.get(), credentials_, {.rank = 1}, soon()).or_throw();
    return fd;
  }
  // Waits until the server has closed the connection; what it said before.
  static std::string last_words(int fd) {
    std::string words;
    char bytes[4096];
    while (transport::wait_readable(fd, soon()).or_throw()) {
      const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
      if (got <= 0) return words;
      words.append(bytes, std::size_t(got));
    }
    ADD_FAILURE() << "the server did not close the connection";
    return words;
  }
  void expect_unharmed() {
    const auto store = victim();
    store->set("k", "v").or_throw();
    EXPECT_EQ(store->get("k", soon()).or_throw(), "v");
  }

  const transport::Credentials credentials_{.secret = transport::Secret::random(), .job = "job"};
  const std::unique_ptr<StoreServer> server_ = StoreServer::start({.host = "127.0.0.1"}, credentials_).or_throw();
};

std::string frame(std::uint32_t id, std::uint8_t kind, const std::string& body) {
  return store::wire::header(id, kind, body.size()) + body;
}

TEST_F(StoreServerTest, APortInUseIsAnError) {
  const auto second = StoreServer::start(server_->address(), credentials_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kAddressInUse);
}

TEST(StoreServer, WithoutAThreadIsAnError) {
  const test::NoThreads none;
  const auto server = StoreServer::start({.host = "127.0.0.1"}, {.secret = transport::Secret::random(), .job = "job"});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(to_string(server.error()), HasSubstr("could not start a thread"));
}

TEST_F(StoreServerTest, GarbageIsClosedWithoutAnAnswer) {
  const auto keeper = victim();
  for (int seed = 0; seed < 50; ++seed) {
    const Fd fd = stranger();
    std::string garbage(1 + seed * 7, char(seed));
    if (seed % 2) crypto::fill_random(std::as_writable_bytes(std::span(garbage)));
    if (garbage[0] == 'T') garbage[0] = 'U';
    (void)transport::send_all(fd.get(), bytes_of(garbage), soon()).ok();
    EXPECT_EQ(last_words(fd.get()), "");
  }
  keeper->set("still", "here").or_throw();
  EXPECT_EQ(server_->counts().let_in, 1u);
  EXPECT_EQ(server_->counts().turned_away, 50u);
}

TEST_F(StoreServerTest, SlowLorisesMakeRoomForHonestClients) {
  std::vector<Fd> lorises;
  for (int i = 0; i < 100; ++i) {
    lorises.push_back(stranger());
    transport::send_all(lorises.back().get(), bytes_of("TUTTI1"), soon()).or_throw();  // and then nothing
  }
  expect_unharmed();
}

TEST_F(StoreServerTest, ASilentCrowdDelaysOtherClientsBriefly) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < 4096) GTEST_SKIP() << "both ends of the crowd are ours";
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, 4096);
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::vector<Fd> crowd;
  for (int i = 0; i < 570; ++i) crowd.push_back(stranger());  // more than the backlog holds, and places
  const auto store = TcpStore::connect(server_->address(), credentials_, 0, Deadline::after_seconds(3));
  EXPECT_TRUE(store.ok()) << to_string(store.error());
  for (const Fd& fd : crowd) EXPECT_EQ(last_words(fd.get()), "") << "each is closed";
}

TEST_F(StoreServerTest, CrowdOfHonestClientsIsLetIn) {
  constexpr int kThreads = 8, kEach = 25;  // more than the places for half-open ones
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      std::vector<Fd> sockets;
      for (int i = 0; i < kEach; ++i) sockets.push_back(stranger());
      for (const Fd& fd : sockets) {
        const Status status = transport::handshake_as_client(fd.get(), credentials_, {}, soon());
        // A connection that is silent for half a second while others wait may be dropped; on a busy machine that can be
        // ours.
        EXPECT_TRUE(status.ok() || status.error().code == Code::kPeerLost) << to_string(status.error());
      }
    });
  for (auto& thread : threads) thread.join();
  expect_unharmed();
}

TEST_F(StoreServerTest, LengthBeyondTheLimitIsRefusedBeforeAnyMemoryIsTaken) {
  const Fd fd = insider();
  transport::send_all(fd.get(), bytes_of(std::string("\xff\xff\xff\xff", 4) + std::string(5, '\0')), soon()).or_throw();
  EXPECT_EQ(last_words(fd.get()), "");
  expect_unharmed();
}

TEST_F(StoreServerTest, CountsAndSizesThatLieAreRefused) {
  const std::string lies[] = {
      std::string(4, '\xff'),                      // four billion keys
      std::string("\1\0\0\0\xff\xff\xff\xff", 8),  // one key of four billion bytes
      std::string("\1\0\0\0\5\0\0\0ab", 10),       // one key, cut short
      std::string("\0\0\0\0\0\0\0\0", 8),          // no numbers
      store::wire::body_of(store::Request{.op = store::Op::kGet, .keys = {"k"}}) + "and more",  // too long
      store::wire::body_of(
          store::Request{.op = store::Op::kGet, .keys = std::vector<std::string>(store::kMaxKeysPerCall + 1)}),
      "",
  };
  for (const auto& body : lies) {
    const Fd fd = insider();
    transport::send_all(fd.get(), bytes_of(frame(1, std::uint8_t(store::Op::kGet), body)), soon()).or_throw();
    EXPECT_EQ(last_words(fd.get()), "");
  }
  for (const int kind : {0, 16, 63, 64, 200, 255}) {
    const Fd fd = insider();
    transport::send_all(fd.get(), bytes_of(frame(1, std::uint8_t(kind), lies[3])), soon()).or_throw();
    EXPECT_EQ(last_words(fd.get()), "") << kind;
  }
  expect_unharmed();
}

// An empty string takes four bytes of a frame and 32 of memory.
TEST_F(StoreServerTest, MoreKeysThanACallMayHaveTakeNoMemory) {
  const auto parses = [](std::size_t keys, std::size_t values) {
    const std::string body = store::wire::body_of(store::Request{.op = store::Op::kMultiSet,
                                                                 .keys = std::vector<std::string>(keys),
                                                                 .values = std::vector<std::string>(values)});
    return store::wire::parse_request({.kind = std::uint8_t(store::Op::kMultiSet), .body = bytes_of(body)}).ok();
  };
  EXPECT_TRUE(parses(store::kMaxKeysPerCall, store::kMaxKeysPerCall));
  EXPECT_FALSE(parses(store::kMaxKeysPerCall + 1, 0));
  EXPECT_FALSE(parses(1, store::kMaxKeysPerCall + 1));
}

// The descriptor of a connection that has ended is soon another's, who must not be taken for it.
TEST_F(StoreServerTest, TwoSessionsOnOneConnectionEndItAndHarmNoLaterClient) {
  const auto session = [](std::uint32_t id, std::uint64_t client) {
    return frame(id, std::uint8_t(store::wire::Kind::kSession), store::wire::body_of_client(client));
  };
  Fd twice = insider();
  transport::send_all(twice.get(), bytes_of(session(1, 71) + session(2, 72)), soon()).or_throw();
  (void)last_words(twice.get());
  const auto next = victim();  // has the descriptor of `twice` in the server
  const Fd again = insider();
  transport::send_all(again.get(), bytes_of(session(1, 71)), soon()).or_throw();
  ASSERT_TRUE(transport::wait_readable(again.get(), soon()).or_throw()) << "the session is answered";
  const auto let_in = server_->counts().let_in;
  next->set("k", "v").or_throw();
  EXPECT_EQ(server_->counts().let_in, let_in) << "it had to connect anew";
}

TEST_F(StoreServerTest, WellFormedNonsenseIsAnsweredWithAnError) {
  const Fd fd = insider();
  const store::Request nonsense[] = {
      {.op = store::Op::kSet, .keys = {"no value"}},
      {.op = store::Op::kBarrier, .keys = {"b"}, .rank = 5, .size = 2},
      {.op = store::Op::kBarrier, .keys = {"b"}, .rank = 0, .size = 2147483647},
      {.op = store::Op::kSet, .keys = {std::string(5000, 'k')}, .values = {"v"}},
      {.op = store::Op::kNumKeys, .keys = {"a key"}},
  };
  store::wire::FrameReader reader;
  std::uint32_t id = 0;
  for (const auto& request : nonsense) {
    transport::send_all(fd.get(), bytes_of(frame(++id, std::uint8_t(request.op), store::wire::body_of(request))),
                        soon())
        .or_throw();
    std::optional<store::wire::Frame> answer;
    while (!(answer = reader.next().or_throw())) {
      ASSERT_TRUE(transport::wait_readable(fd.get(), soon()).or_throw());
      (void)reader.read(fd.get()).or_throw();
    }
    EXPECT_EQ(answer->id, id);
    EXPECT_TRUE(store::wire::parse_reply(*answer).or_throw().error.has_value()) << describe(request);
  }
}

TEST_F(StoreServerTest, TwoCallsUnderOneIdAndTooManyCallsEndTheConnection) {
  const std::string get = store::wire::body_of(store::Request{.op = store::Op::kGet, .keys = {"never"}});
  const Fd twice = insider();
  transport::send_all(
      twice.get(),
      bytes_of(frame(1, std::uint8_t(store::Op::kGet), get) + frame(1, std::uint8_t(store::Op::kGet), get)), soon())
      .or_throw();
  EXPECT_EQ(last_words(twice.get()), "");
  const Fd many = insider();
  for (std::uint32_t id = 0; id < 1025; ++id)
    if (!transport::send_all(many.get(), bytes_of(frame(id, std::uint8_t(store::Op::kGet), get)), soon()).ok()) break;
  EXPECT_EQ(last_words(many.get()), "");
  expect_unharmed();
}

TEST_F(StoreServerTest, ClientThatNeverReadsIsDropped) {
  const auto keeper = victim();
  keeper->set("large", std::string(8 << 20, 'x')).or_throw();
  const Fd fd = insider();
  const std::string get = store::wire::body_of(store::Request{.op = store::Op::kGet, .keys = {"large"}});
  Status sent;
  for (std::uint32_t id = 0; id < 200 && sent.ok(); ++id)
    sent = transport::send_all(fd.get(), bytes_of(frame(id, std::uint8_t(store::Op::kGet), get)), soon());
  while (server_->counts().dropped == 0) std::this_thread::yield();
  EXPECT_LT(last_words(fd.get()).size(), std::size_t(16) << 20);  // what the sockets held, and no more
  expect_unharmed();
}

TEST_F(StoreServerTest, RankThatDiesInABarrierIsMissing) {
  {
    const Fd dying = insider();
    const store::Request barrier{.op = store::Op::kBarrier, .keys = {"b"}, .rank = 1, .size = 2};
    transport::send_all(dying.get(),
                        bytes_of(frame(1, std::uint8_t(store::Op::kBarrier), store::wire::body_of(barrier))), soon())
        .or_throw();
    while (server_->counts().calls == 0) std::this_thread::yield();
  }
  const auto store = victim();
  Status status;
  do
    status = store->barrier("b", 1, 2,
                            Deadline::after_seconds(0.01));  // taken, until the server has seen the end of the other
  while (!status.ok() && status.error().code == Code::kMismatch);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(to_string(status.error()), HasSubstr("rank 0 of 2 did not arrive"));
}

TEST_F(StoreServerTest, TableIsBounded) {
  const auto local = server_->local();
  const std::string large(8 << 20, 'x');
  Status status;
  int kept = 0;
  while ((status = local->set("k" + std::to_string(kept), large)).ok()) ++kept;
  EXPECT_EQ(kept, 31);  // 32 would be 256 MiB without their keys
  EXPECT_EQ(status.error().code, Code::kLimit);
  EXPECT_THAT(to_string(status.error()), HasSubstr("with this it would be more than 256 MiB"));
  EXPECT_TRUE(local->remove("k0").or_throw());
  EXPECT_TRUE(local->set("k0", large).ok());
}

TEST(Wire, FramesSurviveTheWay) {
  const store::Request request{.op = store::Op::kGatherAll,
                               .keys = {std::string("a\0b", 3), ""},
                               .values = {"v"},
                               .number = -5,
                               .rank = 2,
                               .size = 3};
  const std::string body = store::wire::body_of(request);
  EXPECT_EQ(store::wire::parse_request({.kind = std::uint8_t(request.op), .body = bytes_of(body)}).or_throw(), request);
  store::Reply reply;
  reply.error = Error{.code = Code::kMismatch, .detail = "d", .hint = "h"};
  const std::string failure = store::wire::body_of(reply);
  const auto parsed =
      store::wire::parse_reply({.kind = store::wire::kind_of(reply), .body = bytes_of(failure)}).or_throw();
  EXPECT_EQ(to_string(*parsed.error), to_string(*reply.error));
  const std::string missing = store::wire::body_of(store::Missing{.ranks = {1, 5}, .keys = {"k"}});
  EXPECT_THAT(store::wire::parse_missing({.body = bytes_of(missing)}).or_throw().ranks, testing::ElementsAre(1, 5));
}

TEST(Wire, EveryTruncationIsRefused) {
  const std::string body =
      store::wire::body_of(store::Request{.op = store::Op::kMultiSet, .keys = {"k", "l"}, .values = {"v", "w"}});
  for (std::size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(
        store::wire::parse_request({.kind = std::uint8_t(store::Op::kMultiSet), .body = bytes_of(body).first(size)})
            .ok())
        << size;
}

TEST(Wire, FramesAreCutWhereverTheBytesStop) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  const Fd left(pair[0]), right(pair[1]);
  const std::string bytes = frame(1, 64, "") + frame(2, 65, std::string(10000, 'b')) + frame(3, 66, "c");
  store::wire::FrameReader reader;
  std::vector<std::size_t> sizes;
  for (std::size_t at = 0; at < bytes.size(); at += 997) {
    const std::string part = bytes.substr(at, 997);
    ASSERT_EQ(::write(left.get(), part.data(), part.size()), ssize_t(part.size()));
    while (reader.read(right.get()).or_throw())
      while (const auto next = reader.next().or_throw()) sizes.push_back(next->body.size());
  }
  EXPECT_THAT(sizes, testing::ElementsAre(0u, 10000u, 1u));
}

}  // namespace
}  // namespace tutti
