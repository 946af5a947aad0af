#include "tutti/transport/striped_link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstring>

#include "tests/conformance/link_conformance.h"
#include "tutti/transport/inproc/inproc_link.h"
#include "tutti/transport/tcp/tcp_link.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;

struct Ends {
  std::vector<std::unique_ptr<Link>> streams[2];  // by side
};

Ends sockets(int streams) {
  Ends ends;
  for (int i = 0; i < streams; ++i) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    const int little = 4096 << i;  // so that chunks stop half-way, each stream elsewhere
    for (const int fd : fds) EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    for (int side = 0; side < 2; ++side) ends.streams[side].push_back(make_tcp_link(Fd(fds[side]), "a socket"));
  }
  return ends;
}

LinkPair pair_of(int streams) {
  Ends ends = sockets(streams);
  return {.first = make_striped_link(std::move(ends.streams[0])),
          .second = make_striped_link(std::move(ends.streams[1]))};
}

INSTANTIATE_TEST_SUITE_P(Striped, LinkConformance,
                         testing::Values(LinkMaker{"one", [] { return pair_of(1); }},
                                         LinkMaker{"three", [] { return pair_of(3); }}),
                         [](const auto& info) { return info.param.name; });

// Passes on to a link of somebody else's, and counts.
class Counted final : public Link {
 public:
  Counted(Link* link, std::size_t* sent) : link_(link), sent_(sent) {}
  Result<std::size_t> try_send(std::span<const iovec> buffers) override {
    const std::size_t sent = TUTTI_TRY(link_->try_send(buffers));
    *sent_ += sent;
    return sent;
  }
  Result<std::size_t> try_recv(std::span<const iovec> buffers) override { return link_->try_recv(buffers); }
  std::size_t peek(std::span<std::byte> into) override { return link_->peek(into); }
  int poll_fd() const override { return link_->poll_fd(); }
  std::string peer_address() const override { return link_->peer_address(); }

 private:
  Link* link_;
  std::size_t* sent_;
};

TEST(StripedLink, AStreamThatHoldsLessCarriesLess) {
  auto narrow = make_inproc_mesh(2, {}, 64 << 10), wide = make_inproc_mesh(2, {}, 1 << 20);
  std::size_t sent[2] = {}, ignored = 0;
  std::vector<std::unique_ptr<Link>> here, there;
  here.push_back(std::make_unique<Counted>(narrow[0][1].get(), &sent[0]));
  here.push_back(std::make_unique<Counted>(wide[0][1].get(), &sent[1]));
  there.push_back(std::make_unique<Counted>(narrow[1][0].get(), &ignored));
  there.push_back(std::make_unique<Counted>(wide[1][0].get(), &ignored));
  const auto first = make_striped_link(std::move(here)), second = make_striped_link(std::move(there));
  std::vector<std::uint32_t> data(8 << 20), came(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::uint32_t(i);
  const std::size_t bytes = data.size() * sizeof data[0];
  for (std::size_t out = 0, in = 0; in < bytes;) {
    const iovec leaving{reinterpret_cast<std::byte*>(data.data()) + out, bytes - out};
    if (out < bytes) out += first->try_send({&leaving, 1}).or_throw();
    const iovec coming{reinterpret_cast<std::byte*>(came.data()) + in, std::min<std::size_t>(bytes - in, 100'000)};
    in += second->try_recv({&coming, 1}).or_throw();
  }
  EXPECT_EQ(came, data);
  EXPECT_GT(sent[0], bytes / 20);
  EXPECT_GT(sent[1], 2 * sent[0]) << "the narrow one's share: " << sent[0] << " of " << bytes;
}

TEST(StripedLink, OneStreamThatBreaksIsALoss) {
  Ends ends = sockets(2);
  const auto first = make_striped_link(std::move(ends.streams[0]));
  ends.streams[1].pop_back();
  const auto second = make_striped_link(std::move(ends.streams[1]));
  char byte;
  const iovec buffer{&byte, 1};
  Result<std::size_t> got = std::size_t(0);
  while (got.ok()) got = first->try_recv({&buffer, 1});
  EXPECT_EQ(to_string(got.error()), "PeerLost: closed the connection at a socket");
}

TEST(StripedLink, BytesThatAreNoChunk) {
  Ends ends = sockets(2);
  const auto first = make_striped_link(std::move(ends.streams[0]));
  char nonsense[16];
  std::memset(nonsense, 'x', sizeof nonsense);
  const iovec sent{nonsense, sizeof nonsense};
  ASSERT_EQ(ends.streams[1][1]->try_send({&sent, 1}).or_throw(), sizeof nonsense);
  char byte;
  const iovec buffer{&byte, 1};
  Result<std::size_t> got = std::size_t(0);
  while (got.ok()) got = first->try_recv({&buffer, 1});
  EXPECT_THAT(to_string(got.error()), HasSubstr("Mismatch: sent bytes that do not begin a chunk"));
}

}  // namespace
}  // namespace tutti::transport
