#include "tutti/comm/links/network_probe.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "tutti/transport/tcp/tcp_link.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;

class Probe : public testing::Test {
 protected:
  Probe() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; ++i) links_[i] = transport::make_tcp_link(Fd(fds[i]), "a socket");
  }
  std::unique_ptr<transport::Link> links_[2];
  const Deadline deadline_ = Deadline::after_seconds(60);
};

TEST_F(Probe, FiguresArePowersOfTwoAndSerializeWithoutLoss) {
  Status answered;
  std::thread peer([&] { answered = answer_network(*links_[1], deadline_); });
  const LinkCost cost = ask_network(*links_[0], deadline_).or_throw();
  peer.join();
  EXPECT_TRUE(answered.ok());
  int exponent;
  EXPECT_EQ(std::frexp(cost.latency * 1e6, &exponent), 0.5) << cost.latency;
  EXPECT_EQ(std::frexp(cost.bandwidth, &exponent), 0.5) << cost.bandwidth;
  EXPECT_GT(cost.bandwidth, 1e6);
  const LinkCost told = from_words(to_words(cost)).or_throw();
  EXPECT_EQ(told.latency, cost.latency);
  EXPECT_EQ(told.bandwidth, cost.bandwidth);
  EXPECT_EQ(told.overhead, cost.overhead);
}

TEST_F(Probe, ALostPeerFailsBothSides) {
  links_[1].reset();
  EXPECT_EQ(ask_network(*links_[0], deadline_).status().error().code, Code::kPeerLost);
  EXPECT_EQ(answer_network(*links_[0], deadline_).error().code, Code::kPeerLost);
}

TEST_F(Probe, AskingAMutePeerFailsAtTheDeadline) {
  const auto cost = ask_network(*links_[0], Deadline::after_seconds(0.2));
  ASSERT_FALSE(cost.ok());
  EXPECT_THAT(to_string(cost.status().error()), HasSubstr("did not answer after 2"));
}

// Every byte that it sends is a question, and it takes every answer.
class EndlessPeer : public transport::Link {
 public:
  Result<std::size_t> try_send(std::span<const iovec> buffers) override { return buffers[0].iov_len; }
  Result<std::size_t> try_recv(std::span<const iovec> buffers) override {
    std::memset(buffers[0].iov_base, 0, buffers[0].iov_len);
    return buffers[0].iov_len;
  }
  std::size_t peek(std::span<std::byte>) override { return 0; }
  int poll_fd() const override { return -1; }
  std::string peer_address() const override { return "endless"; }
};

TEST_F(Probe, AnsweringAnEndlessPeerFailsAtTheDeadline) {
  EndlessPeer peer;
  EXPECT_THAT(to_string(answer_network(peer, Deadline::after_seconds(0.01)).error()),
              HasSubstr("the peer sends requests without end"));
}

TEST_F(Probe, RejectsMalformedInputWithAReason) {
  EXPECT_EQ(parse_network("10us,12.5").or_throw().bandwidth, 12.5e9);
  for (const char* text : {"", "10us", "10us,", ",5", "fast,5", "10us,0", "-1us,5", "10us,5GB/s", "inf,5", "10us,inf"})
    EXPECT_THAT(to_string(parse_network(text).status().error()),
                HasSubstr("expected a latency and a bandwidth in 1e9 bytes a second, such as 10us,12.5"))
        << text;
  EXPECT_FALSE(from_words("1e-6").ok());
  EXPECT_FALSE(from_words("0x1p-1 -0x1p-1 0x0p+0").ok());
  EXPECT_FALSE(from_words("inf inf 0").ok()) << "no time can be predicted from it";
  EXPECT_FALSE(from_words("0x1p-1 0x1p-1 0x0p+0 more").ok());
  std::byte nonsense{77};
  const iovec buffer{&nonsense, 1};
  ASSERT_TRUE(links_[0]->try_send({&buffer, 1}).ok());
  EXPECT_THAT(to_string(answer_network(*links_[1], deadline_).error()),
              HasSubstr("an invalid request of the network measurement"));
}

}  // namespace
}  // namespace tutti::comm
