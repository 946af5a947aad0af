#include "tests/conformance/link_conformance.h"

#include <poll.h>

#include <numeric>
#include <thread>
#include <vector>

#include "tutti/base/deadline.h"

namespace tutti {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>((i * 131 + (i >> 8) * 17 + seed) & 255);
  return bytes;
}

iovec piece(Bytes& bytes, std::size_t offset, std::size_t size) { return {bytes.data() + offset, size}; }
iovec rest(Bytes& bytes, std::size_t done) { return piece(bytes, done, bytes.size() - done); }

std::size_t send(transport::Link& link, Bytes& bytes, std::size_t done) {
  const iovec buffer = rest(bytes, done);
  auto sent = link.try_send({&buffer, 1});
  EXPECT_TRUE(sent.ok()) << (sent.ok() ? "" : to_string(sent.error()));
  return sent.ok() ? *sent : 0;
}
std::size_t recv(transport::Link& link, Bytes& bytes, std::size_t done) {
  const iovec buffer = rest(bytes, done);
  auto got = link.try_recv({&buffer, 1});
  EXPECT_TRUE(got.ok()) << (got.ok() ? "" : to_string(got.error()));
  return got.ok() ? *got : 0;
}
// All bytes; the peer must be sending them, or have sent them.
void recv_all(transport::Link& link, Bytes& bytes, std::size_t done = 0) {
  const Deadline deadline = Deadline::after_seconds(60);
  while (done < bytes.size() && !testing::Test::HasFailure()) {
    const std::size_t got = recv(link, bytes, done);
    done += got;
    if (got == 0) std::this_thread::yield();
    ASSERT_FALSE(deadline.expired()) << "only " << done << " of " << bytes.size() << " bytes came";
  }
}

TEST_P(LinkConformance, CarriesBytesBothWays) {
  LinkPair pair = GetParam().make();
  Bytes there = pattern(1000, 1), back = pattern(500, 2), got_there(1000), got_back(500);
  EXPECT_EQ(send(*pair.first, there, 0), 1000u);
  EXPECT_EQ(send(*pair.second, back, 0), 500u);
  recv_all(*pair.second, got_there);
  recv_all(*pair.first, got_back);
  EXPECT_EQ(got_there, there);
  EXPECT_EQ(got_back, back);
}

TEST_P(LinkConformance, NothingHasComeIsNotAnError) {
  LinkPair pair = GetParam().make();
  Bytes bytes(16);
  EXPECT_EQ(recv(*pair.first, bytes, 0), 0u);
  EXPECT_EQ(recv(*pair.second, bytes, 0), 0u);
}

TEST_P(LinkConformance, PeekingTakesNothing) {
  LinkPair pair = GetParam().make();
  Bytes sent = pattern(900, 1), seen(10), got(900);
  EXPECT_EQ(pair.second->peek(std::as_writable_bytes(std::span(seen))), 0u);
  EXPECT_EQ(send(*pair.first, sent, 0), 900u);
  for (int look = 0; look < 2; ++look) {
    for (const Deadline deadline = Deadline::after_seconds(60);
         pair.second->peek(std::as_writable_bytes(std::span(seen))) < 10 && !deadline.expired();)
      std::this_thread::yield();
    EXPECT_EQ(seen, Bytes(sent.begin(), sent.begin() + 10));
  }
  recv_all(*pair.second, got);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(pair.second->peek(std::as_writable_bytes(std::span(seen))), 0u);
}

TEST_P(LinkConformance, ScattersAndGathers) {
  LinkPair pair = GetParam().make();
  Bytes sent = pattern(100, 3), got(100);
  const iovec out[] = {piece(sent, 0, 1), piece(sent, 1, 0), piece(sent, 1, 60), piece(sent, 61, 39)};
  auto taken = pair.first->try_send(out);
  ASSERT_TRUE(taken.ok());
  ASSERT_EQ(*taken, 100u);
  const Deadline deadline = Deadline::after_seconds(60);
  for (std::size_t done = 0; done < 100;) {  // two buffers wherever the stream happens to stand
    const std::size_t middle = done + (100 - done) / 3;
    const iovec in[] = {piece(got, done, middle - done), piece(got, middle, 100 - middle)};
    auto came = pair.second->try_recv(in);
    ASSERT_TRUE(came.ok());
    done += *came;
    ASSERT_FALSE(deadline.expired());
  }
  EXPECT_EQ(got, sent);
}

TEST_P(LinkConformance, EmptyBuffersMoveNothing) {
  LinkPair pair = GetParam().make();
  Bytes bytes(4);
  const iovec nothing = piece(bytes, 0, 0);
  auto sent = pair.first->try_send({&nothing, 1});
  ASSERT_TRUE(sent.ok());
  EXPECT_EQ(*sent, 0u);
  auto got = pair.second->try_recv({&nothing, 1});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, 0u);
}

TEST_P(LinkConformance, AFullLinkTakesNoMoreUntilThePeerReads) {
  LinkPair pair = GetParam().make();
  Bytes chunk = pattern(64 << 10, 4);
  std::size_t sent = 0;
  int refused = 0;  // a socket may take more once its buffers have settled
  while (refused < 100) {
    const std::size_t taken = send(*pair.first, chunk, sent % chunk.size());
    sent += taken;
    refused = taken == 0 ? refused + 1 : 0;
    ASSERT_LT(sent, std::size_t(1) << 30) << "the link has no bound";
  }
  Bytes got(sent);
  recv_all(*pair.second, got);
  for (std::size_t i = 0; i < sent; ++i) ASSERT_EQ(got[i], chunk[i % chunk.size()]) << "at byte " << i;
  EXPECT_GT(send(*pair.first, chunk, 0), 0u);
}

TEST_P(LinkConformance, StreamsManyMegabytesBetweenTwoThreads) {
  LinkPair pair = GetParam().make();
  static constexpr std::size_t kSize = 8 << 20;
  const auto end = [](transport::Link& link, unsigned own, unsigned peer) {
    Bytes out = pattern(kSize, own), in(kSize);
    std::size_t sent = 0, got = 0;
    const Deadline deadline = Deadline::after_seconds(100);
    while ((sent < kSize || got < kSize) && !testing::Test::HasFailure() && !deadline.expired()) {
      // Odd sizes, so that every position in the ring is an edge at some time.
      const iovec a = piece(out, sent, std::min<std::size_t>(kSize - sent, 1 + sent % 70001)),
                  b = piece(in, got, std::min<std::size_t>(kSize - got, 1 + got % 90001));
      auto took = link.try_send({&a, 1});
      auto came = got < kSize ? link.try_recv({&b, 1}) : Result<std::size_t>(std::size_t(0));
      ASSERT_TRUE(took.ok() && came.ok());
      sent += *took;
      got += *came;
      if (*took == 0 && *came == 0) std::this_thread::yield();
    }
    EXPECT_EQ(sent, kSize);
    EXPECT_EQ(in, pattern(kSize, peer));
  };
  std::thread other([&] { end(*pair.second, 6, 5); });
  end(*pair.first, 5, 6);
  other.join();
}

TEST_P(LinkConformance, APeerThatIsGoneIsLostAfterItsLastByte) {
  LinkPair pair = GetParam().make();
  Bytes last = pattern(300, 7), got(300);
  ASSERT_EQ(send(*pair.second, last, 0), 300u);
  pair.lose_second ? pair.lose_second() : pair.second.reset();
  recv_all(*pair.first, got);
  EXPECT_EQ(got, last);
  const Deadline deadline = Deadline::after_seconds(60);
  const iovec buffer = piece(got, 0, 300);
  for (Result<std::size_t> more = pair.first->try_recv({&buffer, 1});; more = pair.first->try_recv({&buffer, 1})) {
    if (!more.ok()) {
      EXPECT_EQ(more.error().code, Code::kPeerLost) << to_string(more.error());
      break;
    }
    ASSERT_EQ(*more, 0u);
    ASSERT_FALSE(deadline.expired()) << "the loss was never told";
  }
  for (Result<std::size_t> more = pair.first->try_send({&buffer, 1});; more = pair.first->try_send({&buffer, 1})) {
    if (!more.ok()) {
      EXPECT_EQ(more.error().code, Code::kPeerLost) << to_string(more.error());
      break;
    }
    ASSERT_FALSE(deadline.expired()) << "the loss was never told";
  }
}

TEST_P(LinkConformance, ABlockedReceiverCanPollOrIsRung) {
  LinkPair pair = GetParam().make();
  if (pair.second->poll_fd() < 0) return;  // its transport's own test checks the bell
  pollfd poll{.fd = pair.second->poll_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&poll, 1, 0), 0);
  Bytes bytes = pattern(1, 8);
  ASSERT_EQ(send(*pair.first, bytes, 0), 1u);
  EXPECT_EQ(::poll(&poll, 1, 60000), 1);
}

TEST_P(LinkConformance, NamesThePeer) {
  LinkPair pair = GetParam().make();
  EXPECT_FALSE(pair.first->peer_address().empty());
  EXPECT_FALSE(pair.second->peer_address().empty());
}

}  // namespace
}  // namespace tutti
