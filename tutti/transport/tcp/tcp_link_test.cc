#include "tutti/transport/tcp/tcp_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "tests/conformance/link_conformance.h"

namespace tutti::transport {
namespace {

// A connection over loopback, by hand: this is a test of the link, not of how sockets meet.
std::pair<Fd, Fd> make_sockets() {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  Fd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return {std::move(client), std::move(server)};
}

LinkPair make_tcp_pair() {
  auto [client, server] = make_sockets();
  return {.first = make_tcp_link(std::move(client), "127.0.0.1:1"),
          .second = make_tcp_link(std::move(server), "127.0.0.1:2")};
}

INSTANTIATE_TEST_SUITE_P(Tcp, LinkConformance, testing::Values(LinkMaker{"loopback", make_tcp_pair}),
                         [](const auto& info) { return info.param.name; });

TEST(TcpLink, NamesTheAddressOfAPeerThatIsGone) {
  LinkPair pair = make_tcp_pair();
  pair.second.reset();
  char byte;
  const iovec buffer{&byte, 1};
  Result<std::size_t> got = std::size_t(0);
  while (got.ok()) got = pair.first->try_recv({&buffer, 1});
  EXPECT_EQ(to_string(got.error()), "PeerLost: closed the connection at 127.0.0.1:1");
}

// Of a look at the link's descriptor, which waits for so many milliseconds at most.
bool wakes(const Link& link, int limit) {
  pollfd poll{.fd = link.poll_fd(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, limit) == 1;
}

TEST(TcpLink, IsWokenForAGoodPartOfWhatItAwaits) {
  constexpr int kLong = 60'000;
  LinkPair pair = make_tcp_pair();
  std::vector<std::byte> bytes(10'000), came(bytes.size());
  const auto send = [&](std::size_t count) {
    const iovec part{bytes.data(), count};
    ASSERT_EQ(pair.first->try_send({&part, 1}).or_throw(), count);
  };
  pair.second->wake_at(bytes.size());
  send(100);
  while (pair.second->peek(came) < 100) std::this_thread::yield();
  EXPECT_FALSE(wakes(*pair.second, 0));
  send(bytes.size() - 100);
  EXPECT_TRUE(wakes(*pair.second, kLong));
  for (std::size_t left = bytes.size(); left > 0;) {
    const iovec part{came.data(), left};
    left -= pair.second->try_recv({&part, 1}).or_throw();
  }
  send(100);
  while (pair.second->peek(came) < 100) std::this_thread::yield();
  EXPECT_FALSE(wakes(*pair.second, 0));
  pair.second->wake_at(1);
  EXPECT_TRUE(wakes(*pair.second, kLong));
  pair.second->wake_at(bytes.size());
  EXPECT_FALSE(wakes(*pair.second, 0));
  pair.first.reset();
  EXPECT_TRUE(wakes(*pair.second, kLong)) << "nothing more will come";
}

}  // namespace
}  // namespace tutti::transport
