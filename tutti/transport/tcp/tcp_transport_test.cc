#include "tutti/transport/tcp/tcp_transport.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "tests/harness/limits.h"
#include "tutti/base/clock.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;
using Links = std::vector<std::unique_ptr<Link>>;

const Credentials kJob{.secret = Secret::from_text("sesame"), .job = "job", .generation = 1};

struct Ranks {
  explicit Ranks(int size, std::vector<int> global = {}) {
    for (int rank = 0; rank < size; ++rank) {
      global_ranks.push_back(global.empty() ? rank : global[rank]);
      transports.push_back(TcpTransport::open("127.0.0.1", kJob, global_ranks[rank]).or_throw());
      contacts.push_back(transports[rank]->contact());
    }
  }
  Result<Links> connect(int rank, std::uint64_t channel, double limit = 60) {
    return transports[rank]->connect(contacts, global_ranks, rank, channel, Deadline::after_seconds(limit));
  }
  std::vector<std::unique_ptr<TcpTransport>> transports;
  std::vector<std::string> contacts;
  std::vector<int> global_ranks;
};

// What the engine's thread does: sweeps when it is told to, until `over`.
bool sweep_until(TcpTransport& transport, const std::function<bool()>& over) {
  const Deadline deadline = Deadline::after_seconds(60);
  while (!over() && !deadline.expired()) {
    pollfd timer{.fd = transport.sweep_fd(), .events = POLLIN, .revents = 0};
    if (::poll(&timer, 1, 100) == 1) transport.sweep();
  }
  return over();
}

bool was_closed(const Fd& socket) {
  pollfd poll{.fd = socket.get(), .events = POLLIN, .revents = 0};
  char byte = 0;
  return ::poll(&poll, 1, 0) == 1 && ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

void send_byte(Link& link, char byte) {
  const iovec buffer{&byte, 1};
  ASSERT_EQ(*link.try_send({&buffer, 1}), 1u);
}
char recv_byte(Link& link) {
  char byte = 0;
  const iovec buffer{&byte, 1};
  const Deadline deadline = Deadline::after_seconds(60);
  for (;;) {
    auto got = link.try_recv({&buffer, 1});
    if (!got.ok()) return 'E';
    if (*got == 1) return byte;
    if (deadline.expired()) return 'T';
    std::this_thread::yield();
  }
}

// Each rank sends its number to every other; everybody hears everybody.
void expect_full_mesh(std::vector<Links>& mesh) {
  const int size = int(mesh.size());
  for (int a = 0; a < size; ++a) {
    ASSERT_EQ(int(mesh[a].size()), size);
    EXPECT_EQ(mesh[a][a], nullptr);
    for (int b = 0; b < size; ++b) {
      if (a != b) send_byte(*mesh[a][b], char('a' + a));
    }
  }
  for (int a = 0; a < size; ++a) {
    for (int b = 0; b < size; ++b) {
      if (a == b) continue;
      EXPECT_EQ(recv_byte(*mesh[b][a]), char('a' + a)) << a << " to " << b;
    }
  }
}

TEST(TcpTransport, FullMesh) {
  for (const int size : {1, 2, 3, 7, 12}) {
    std::vector<int> global;
    for (int rank = 0; rank < size; ++rank)
      global.push_back(100 - 3 * rank);  // the order of the group is not that of the world
    Ranks ranks(size, global);
    std::vector<Links> mesh(size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        auto links = ranks.connect(rank, 5);
        ASSERT_TRUE(links.ok()) << to_string(links.error());
        mesh[rank] = *std::move(links);
      });
    }
    for (auto& thread : threads) thread.join();
    expect_full_mesh(mesh);
  }
}

TEST(TcpTransport, AnEarlyConnectionWaitsForItsChannel) {
  Ranks ranks(3);
  std::vector<Links> first(3), second(3);
  // Rank 2 wants channel 2 only, with rank 0 (no contact for rank 1); rank 0 first meets rank 1 on channel 1.
  std::thread two([&] {
    const std::vector<std::string> contacts{ranks.contacts[0], "", ranks.contacts[2]};
    second[2] =
        ranks.transports[2]->connect(contacts, ranks.global_ranks, 2, 2, Deadline::after_seconds(60)).or_throw();
  });
  std::thread one([&] {
    two.join();  // rank 1 comes after rank 2 was let in
    const std::vector<std::string> contacts{ranks.contacts[0], ranks.contacts[1], ""};
    first[1] = ranks.transports[1]->connect(contacts, ranks.global_ranks, 1, 1, Deadline::after_seconds(60)).or_throw();
  });
  std::vector<std::string> contacts{ranks.contacts[0], ranks.contacts[1], ""};
  first[0] = ranks.transports[0]->connect(contacts, ranks.global_ranks, 0, 1, Deadline::after_seconds(60)).or_throw();
  one.join();
  contacts = {ranks.contacts[0], "", ranks.contacts[2]};
  second[0] = ranks.transports[0]->connect(contacts, ranks.global_ranks, 0, 2, Deadline::after_seconds(60)).or_throw();
  EXPECT_EQ(first[0][2], nullptr);
  send_byte(*first[1][0], 'x');
  send_byte(*second[2][0], 'y');
  EXPECT_EQ(recv_byte(*first[0][1]), 'x');
  EXPECT_EQ(recv_byte(*second[0][2]), 'y');
}

TEST(TcpTransport, NamesTheRanksThatDidNotConnect) {
  Ranks ranks(4);
  auto links = ranks.connect(0, 1, 0.05);
  ASSERT_FALSE(links.ok());
  EXPECT_EQ(links.error().code, Code::kTimeout);
  EXPECT_THAT(to_string(links.error()),
              HasSubstr("connecting: ranks 1-3 did not connect to " + ranks.contacts[0] + " after"));
}

TEST(TcpTransport, ALongWaitSaysForWhom) {
  Ranks ranks(3);
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(ranks.connect(1, 1, 3.1).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("waiting for rank 2 to connect to " + ranks.contacts[1] + ", rank 0 at " + ranks.contacts[0]));
}

TEST(TcpTransport, APeerThatAnswersNotIsNamed) {
  Ranks ranks(2);
  auto links = ranks.connect(1, 1, 0.05);  // rank 0 listens, but never answers
  ASSERT_FALSE(links.ok());
  EXPECT_THAT(to_string(links.error()), HasSubstr("connecting to rank 0"));
}

TEST(TcpTransport, APeerThatHasEndedIsReportedAtOnce) {
  Ranks ranks(3);
  ranks.transports[0].reset();
  auto links = ranks.connect(2, 1, 60);
  ASSERT_FALSE(links.ok());
  EXPECT_EQ(links.error().code, Code::kUnreachable);
  EXPECT_THAT(to_string(links.error()), HasSubstr("connecting to rank 0: cannot connect to " + ranks.contacts[0]));
}

TEST(TcpTransport, StrangersAreDropped) {
  Ranks ranks(2);
  // One that speaks something else, one with another secret.
  Fd stranger = connect(parse_address(ranks.contacts[0]).or_throw(), Deadline::after_seconds(60)).or_throw();
  const std::string request = "GET / HTTP/1.0\r\n\r\n";
  ASSERT_TRUE(send_all(stranger.get(), std::as_bytes(std::span(request)), Deadline::after_seconds(60)).ok());
  std::vector<Links> mesh(2);
  std::thread zero([&] { mesh[0] = ranks.connect(0, 1).or_throw(); });
  Credentials foreign = kJob;
  foreign.secret = Secret::from_text("guess");
  auto liar = TcpTransport::open("127.0.0.1", foreign, 1).or_throw();
  auto refused = liar->connect(ranks.contacts, ranks.global_ranks, 1, 1, Deadline::after_seconds(60));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kRefused);
  EXPECT_THAT(to_string(refused.error()), HasSubstr("connecting to rank 0: "));
  mesh[1] = ranks.connect(1, 1).or_throw();
  zero.join();
  expect_full_mesh(mesh);
}

TEST(TcpTransport, WithoutThreadsToDialIsAnErrorThatPasses) {
  Ranks ranks(2);
  {
    const test::NoThreads none;
    const auto links = ranks.connect(1, 1);
    ASSERT_FALSE(links.ok());
    EXPECT_EQ(links.error().code, Code::kSystem);
    EXPECT_THAT(to_string(links.error()), HasSubstr("could not start a thread"));
  }
  std::vector<Links> mesh(2);
  std::thread zero([&] { mesh[0] = ranks.connect(0, 2).or_throw(); });
  mesh[1] = ranks.connect(1, 2).or_throw();
  zero.join();
  expect_full_mesh(mesh);
}

TEST(TcpTransport, BindsTheAddressThatWasGiven) {
  auto transport = TcpTransport::open("127.0.0.1", kJob, 0).or_throw();
  EXPECT_EQ(transport->contact().substr(0, 10), "127.0.0.1:");
  EXPECT_FALSE(TcpTransport::open("192.0.2.1", kJob, 0).ok());
}

// A stranger that says nothing is accepted on the way, and must not be kept until the next group is made.
TEST(TcpTransport, ASilentConnectionIsSweptWhenNoRankConnects) {
  Ranks ranks(2);
  const Fd stranger = connect(parse_address(ranks.contacts[0]).or_throw(), Deadline::after_seconds(60)).or_throw();
  std::thread other([&] { (void)ranks.connect(1, 1).or_throw(); });
  (void)ranks.connect(0, 1).or_throw();
  other.join();
  EXPECT_FALSE(was_closed(stranger));
  EXPECT_TRUE(sweep_until(*ranks.transports[0], [&] { return was_closed(stranger); }));
  pollfd timer{.fd = ranks.transports[0]->sweep_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&timer, 1, 0), 0) << "nobody is left to be swept";
}

TEST(TcpTransport, ASilentConnectionIsSweptThoughNoRankEverConnects) {
  const auto transport = TcpTransport::open("127.0.0.1", kJob, 0).or_throw();
  const Address here = parse_address(transport->contact()).or_throw();
  std::vector<Fd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connect(here, Deadline::after_seconds(60)).or_throw());
  EXPECT_TRUE(sweep_until(*transport, [&] { return std::ranges::all_of(strangers, was_closed); }));
  pollfd watch{.fd = transport->sweep_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&watch, 1, 0), 0) << "nobody is left to be swept";
}

TEST(TcpTransport, FiveHundredSilentConnectionsLeaveTogether) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 2400)
    GTEST_SKIP() << "this process may have " << files.rlim_cur << " open files; ulimit -n 2400 would do";
  const auto transport = TcpTransport::open("127.0.0.1", kJob, 0).or_throw();
  const Address here = parse_address(transport->contact()).or_throw();
  std::vector<Fd> strangers;
  for (int i = 0; i < 500; ++i) strangers.push_back(connect(here, Deadline::after_seconds(60)).or_throw());
  int sweeps = 0;
  for (; sweeps < 14 && !std::ranges::all_of(strangers, was_closed); ++sweeps) {
    pollfd timer{.fd = transport->sweep_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&timer, 1, 60'000), 1);
    transport->sweep();
  }
  EXPECT_TRUE(std::ranges::all_of(strangers, was_closed)) << "after " << sweeps << " sweeps";
}

TEST(TcpTransport, AConnectionThatJustClosesIsNoWarning) {
  const auto transport = TcpTransport::open("127.0.0.1", kJob, 0).or_throw();
  ::testing::internal::CaptureStderr();
  { const Fd probe = connect(parse_address(transport->contact()).or_throw(), Deadline::after_seconds(60)).or_throw(); }
  transport->sweep();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// A rank that is ahead has begun its handshake, and is neither lost nor closed by a sweep.
TEST(TcpTransport, ARankThatIsAheadIsKept) {
  Ranks ranks(3);
  std::vector<std::thread> others;
  for (int rank : {1, 2})
    others.emplace_back([&, rank] {
      (void)ranks.connect(rank, 1).or_throw();
      (void)ranks.connect(rank, 2).or_throw();
    });
  (void)ranks.connect(0, 1).or_throw();
  const auto begin = now();
  (void)sweep_until(*ranks.transports[0], [&] { return seconds_since(begin) > 3; });
  EXPECT_TRUE(ranks.connect(0, 2).ok());
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace tutti::transport
