#include "tutti/comm/links/point_to_point.h"

#include <gmock/gmock.h>

#include "tutti/base/deadline.h"
#include "tutti/transport/inproc/inproc_link.h"
#include "tutti/transport/shm/shm_link.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;
using Ints = std::vector<std::int32_t>;

// Ranks 0 and 1 of a group of two.
struct Pair {
  explicit Pair(std::size_t capacity = 256 << 10) {
    std::tie(first, second) = transport::make_inproc_links({}, {}, capacity);
    transport::Link* const of_zero[] = {nullptr, first.get()};
    transport::Link* const of_one[] = {second.get(), nullptr};
    zero = std::make_unique<PointToPoint>(of_zero);
    one = std::make_unique<PointToPoint>(of_one);
  }
  std::unique_ptr<Operation> send(const Ints& data, int tag) {
    return zero->make_send(
        {.kind = Kind::kSend, .dtype = DType::kI32, .root = 1, .tag = tag, .in = data.data(), .count = data.size()},
        ++sends);
  }
  std::unique_ptr<Operation> recv(Ints& data, int tag) {
    return one->make_recv(
        {.kind = Kind::kRecv, .dtype = DType::kI32, .root = 0, .tag = tag, .out = data.data(), .count = data.size()},
        ++recvs);
  }
  std::unique_ptr<transport::Link> first, second;
  std::unique_ptr<PointToPoint> zero, one;
  std::uint64_t sends = 0, recvs = 0;
};

// Steps the operations in turn until all are done or one fails.
Status drive(std::initializer_list<Operation*> operations) {
  const Deadline deadline = Deadline::after_seconds(60);
  for (;;) {
    bool all = true;
    for (Operation* operation : operations) {
      auto progress = operation->step();
      if (!progress.ok()) return progress.status();
      all &= *progress == Progress::kDone;
    }
    if (all) return {};
    if (deadline.expired()) return deadline.error("no end");
  }
}
bool is_done(Operation& operation) {
  auto progress = operation.step();
  while (progress.ok() && *progress == Progress::kMoved) progress = operation.step();
  return progress.ok() && *progress == Progress::kDone;
}

TEST(PointToPoint, CarriesAMessage) {
  Pair pair;
  const Ints sent{1, 2, 3};
  Ints got(3);
  auto send = pair.send(sent, 7), recv = pair.recv(got, 7);
  ASSERT_TRUE(drive({send.get(), recv.get()}).ok());
  EXPECT_EQ(got, sent);
}

TEST(PointToPoint, ASendIsDoneWhenItsBytesAreInTheLink) {
  Pair pair;
  Ints sent{1, 2, 3}, got(3);
  auto send = pair.send(sent, 0);
  EXPECT_TRUE(is_done(*send));
  sent = {0, 0, 0};
  auto recv = pair.recv(got, 0);
  ASSERT_TRUE(drive({recv.get()}).ok());
  EXPECT_EQ(got, (Ints{1, 2, 3}));
}

TEST(PointToPoint, LargeMessagesThroughASmallLinkInBothDirections) {
  Pair pair(1000);
  Ints there(50000), back(70001), got_there(there.size()), got_back(back.size());
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = int(i * 7);
  for (std::size_t i = 0; i < back.size(); ++i) back[i] = int(i * 11);
  auto send_there = pair.send(there, 1), recv_there = pair.recv(got_there, 1);
  auto send_back = pair.one->make_send(
      {.kind = Kind::kSend, .dtype = DType::kI32, .root = 0, .tag = 1, .in = back.data(), .count = back.size()}, 1);
  auto recv_back = pair.zero->make_recv({.kind = Kind::kRecv,
                                         .dtype = DType::kI32,
                                         .root = 1,
                                         .tag = 1,
                                         .out = got_back.data(),
                                         .count = got_back.size()},
                                        1);
  ASSERT_TRUE(drive({send_there.get(), send_back.get(), recv_there.get(), recv_back.get()}).ok());
  EXPECT_EQ(got_there, there);
  EXPECT_EQ(got_back, back);
}

TEST(PointToPoint, EmptyMessages) {
  Pair pair;
  const Ints nothing;
  Ints got;
  auto send = pair.send(nothing, 1), recv = pair.recv(got, 1);
  EXPECT_FALSE(is_done(*recv)) << "even nothing has to be sent";
  ASSERT_TRUE(drive({send.get(), recv.get()}).ok());
}

TEST(PointToPoint, KeepsOrderPerTagAndMatchesTagsInAnyOrder) {
  Pair pair;
  const Ints a{1}, b{2}, c{3}, d{4};
  auto s1 = pair.send(a, 10), s2 = pair.send(b, 20), s3 = pair.send(c, 10), s4 = pair.send(d, 20);
  Ints first_20(1), second_20(1), first_10(1), second_10(1);
  auto r1 = pair.recv(first_20, 20);
  ASSERT_TRUE(drive({s1.get(), s2.get(), s3.get(), s4.get(), r1.get()}).ok());  // skips a
  auto r2 = pair.recv(second_20, 20);
  ASSERT_TRUE(drive({r2.get()}).ok());  // skips c
  auto r3 = pair.recv(first_10, 10), r4 = pair.recv(second_10, 10);
  ASSERT_TRUE(drive({r4.get(), r3.get()}).ok()) << "order of posting decides, not of stepping";
  EXPECT_EQ(first_20, b);
  EXPECT_EQ(second_20, d);
  EXPECT_EQ(first_10, a);
  EXPECT_EQ(second_10, c);
}

TEST(PointToPoint, AReceivePostedWhileItsMessageIsBeingStored) {
  Pair pair(1000);
  Ints large(5000, 9), small{5}, got_large(5000), got_small(1);
  auto send_large = pair.send(large, 1), send_small = pair.send(small, 2);
  auto recv_small = pair.recv(got_small, 2);
  for (int i = 0; i < 5; ++i) {  // the large message has been stored in part
    ASSERT_TRUE(send_large->step().ok());
    ASSERT_TRUE(recv_small->step().ok());
  }
  auto recv_large = pair.recv(got_large, 1);
  ASSERT_TRUE(drive({send_large.get(), send_small.get(), recv_large.get(), recv_small.get()}).ok());
  EXPECT_EQ(got_large, large);
  EXPECT_EQ(got_small, small);
}

TEST(PointToPoint, ReadsNothingWithoutAReceive) {
  Pair pair(1000);
  Ints large(5000, 9);
  auto send = pair.send(large, 1);
  EXPECT_FALSE(is_done(*send)) << "the sender feels that nobody receives";
  Ints got(5000);
  auto recv = pair.recv(got, 1);
  ASSERT_TRUE(drive({send.get(), recv.get()}).ok());
}

TEST(PointToPoint, StoresNoMoreThanItsLimit) {
  Pair pair(1 << 20);
  const Ints chunk(4 << 20, 1);  // 16 MiB
  const Ints last{1};
  std::vector<std::unique_ptr<Operation>> sends;
  for (int i = 0; i < 5; ++i) sends.push_back(pair.send(chunk, 3 + i % 2));
  auto end = pair.send(last, 9);
  Ints got(1);
  auto recv = pair.recv(got, 9);
  const Status status =
      drive({sends[0].get(), sends[1].get(), sends[2].get(), sends[3].get(), sends[4].get(), end.get(), recv.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(to_string(status.error()),
            "Limit: recv #1 (i32[1], from 0, tag 9): rank 0 at inproc has sent 80 MiB that this rank does not receive "
            "(tags 3, 4) "
            "ahead of the awaited message; at most 64 "
            "MiB are kept (hint: receive in the order in which it is sent, or post those receives too)");
}

TEST(PointToPoint, ReceivedMessagesNoLongerCountTowardsTheLimit) {
  Pair pair(1 << 20);
  const Ints chunk(4 << 20, 1), last{1};  // 16 MiB
  Ints got(4 << 20), got_last(1);
  for (int i = 0; i < 6; ++i) {
    auto large = pair.send(chunk, 3), small = pair.send(last, 9), recv_small = pair.recv(got_last, 9);
    const Status status = drive({large.get(), small.get(), recv_small.get()});
    ASSERT_TRUE(status.ok()) << to_string(status.error());
    auto recv_large = pair.recv(got, 3);
    ASSERT_TRUE(is_done(*recv_large));
  }
}

TEST(PointToPoint, AMismatchShowsBothCalls) {
  Pair pair;
  const Ints sent{1, 2, 3};
  Ints got(2);
  auto send = pair.send(sent, 7), recv = pair.recv(got, 7);
  const Status status = drive({send.get(), recv.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(to_string(status.error()),
            "Mismatch: recv #1 (i32[2], from 0, tag 7): rank 0 at inproc called send (i32[3], to 1, tag 7), this rank "
            "recv (i32[2], from 0, tag 7) (hint: a "
            "receive needs the type and count that were sent)");
}

TEST(PointToPoint, AMismatchWithAStoredMessage) {
  Pair pair;
  const Ints sent{1, 2, 3}, other{1};
  Ints got_other(1);
  auto s1 = pair.send(sent, 7), s2 = pair.send(other, 8), r2 = pair.recv(got_other, 8);
  ASSERT_TRUE(drive({s1.get(), s2.get(), r2.get()}).ok());
  double number;
  auto recv = pair.one->make_recv(
      {.kind = Kind::kRecv, .dtype = DType::kF64, .root = 0, .tag = 7, .out = &number, .count = 1}, 5);
  const Status status = drive({recv.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(
      to_string(status.error()),
      HasSubstr("Mismatch: recv #5 (f64[1], from 0, tag 7): rank 0 at inproc called send (i32[3], to 1, tag 7)"));
}

TEST(PointToPoint, NamesALostPeerAfterItsLastMessage) {
  Pair pair;
  const Ints sent{1};
  Ints got(1), more(1);
  auto send = pair.send(sent, 1);
  ASSERT_TRUE(is_done(*send));
  pair.first.reset();
  auto recv = pair.recv(got, 1), never = pair.recv(more, 1);
  ASSERT_TRUE(drive({recv.get()}).ok());
  EXPECT_EQ(got, sent);
  const Status status = drive({never.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(to_string(status.error()), "PeerLost: recv #2 (i32[1], from 0, tag 1): rank 0 at inproc left the group");
}

TEST(PointToPoint, AnAbandonedHalfMessageFailsLaterOperations) {
  Pair pair(100);
  const Ints large(1000, 1);
  Ints got(1000);
  auto recv = pair.recv(got, 1), later = pair.recv(got, 1);
  {
    auto send = pair.send(large, 1);
    ASSERT_TRUE(send->step().ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(recv->step().ok());
  }
  auto next = pair.send(large, 1);
  auto result = next->step();
  ASSERT_FALSE(result.ok()) << "half a message is on the link";
  EXPECT_EQ(result.error().code, Code::kAborted);
  recv.reset();
  result = later->step();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kAborted);
}

TEST(PointToPoint, RejectsMessagesToItself) {
  Pair pair;
  char byte = 0;
  auto send = pair.zero->make_send({.kind = Kind::kSend, .root = 0, .in = &byte, .count = 1}, 1);
  auto result = send->step();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kInvalidArgument);
  EXPECT_THROW(pair.zero->make_send({.kind = Kind::kSend, .root = 2, .in = &byte, .count = 1}, 1), Exception);
}

TEST(PointToPoint, ReportsThePeersItWaitsFor) {
  Pair pair;
  Ints got(1);
  auto recv = pair.recv(got, 1);
  Blockers blockers;
  recv->blockers(blockers);
  EXPECT_EQ(blockers.ranks, std::vector<int>{0});
  EXPECT_TRUE(blockers.needs_bell);
}

// Rank 0 and `others` ranks that can send to it.
struct Star {
  explicit Star(int others, std::function<bool(int)> has_left = {}) {
    std::vector<transport::Link*> links = {nullptr};
    for (int r = 1; r <= others; ++r) {
      auto [near, far] = transport::make_inproc_links({}, {}, 256 << 10);
      transport::Link* const of_other[] = {far.get(), nullptr};
      nears.push_back(std::move(near));
      fars.push_back(std::move(far));
      peers.push_back(std::make_unique<PointToPoint>(of_other));
      links.push_back(nears.back().get());
    }
    zero = std::make_unique<PointToPoint>(links, std::move(has_left));
  }
  // The message from rank `from` is in the link when this returns.
  void send(int from, std::int32_t value, int tag) {
    auto send = peers[from - 1]->make_send(
        {.kind = Kind::kSend, .dtype = DType::kI32, .root = 0, .tag = tag, .in = &value, .count = 1}, 1);
    EXPECT_TRUE(drive({send.get()}).ok());
  }
  std::unique_ptr<Operation> recv(std::int32_t& value, std::int32_t& source, int tag, int from = kAnySource) {
    return zero->make_recv({.kind = Kind::kRecv,
                            .dtype = DType::kI32,
                            .root = from,
                            .tag = tag,
                            .out = &value,
                            .count = 1,
                            .source = &source},
                           ++recvs);
  }
  std::vector<std::unique_ptr<transport::Link>> nears, fars;
  std::vector<std::unique_ptr<PointToPoint>> peers;
  std::unique_ptr<PointToPoint> zero;
  std::uint64_t recvs = 0;
};

TEST(AnySource, TakesTheFirstMessageAndReportsItsSource) {
  Star star(3);
  std::int32_t value = 0, source = -7;
  auto recv = star.recv(value, source, 4);
  EXPECT_FALSE(is_done(*recv));
  star.send(2, 22, 4);
  EXPECT_TRUE(is_done(*recv));
  EXPECT_EQ(value, 22);
  EXPECT_EQ(source, 2);
}

TEST(AnySource, APeerThatNeverPausesDoesNotStarveOthers) {
  Star star(3);
  for (int i = 0; i < 20; ++i) star.send(1, 100 + i, 0);
  for (int r : {2, 3})
    for (int i = 0; i < 2; ++i) star.send(r, r, 0);
  std::vector<int> sources;
  for (int i = 0; i < 6; ++i) {
    std::int32_t value = 0, source = -1;
    auto recv = star.recv(value, source, 0);
    ASSERT_TRUE(drive({recv.get()}).ok());
    sources.push_back(source);
  }
  EXPECT_THAT(sources, testing::ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST(AnySource, MatchesTagsAndLeavesOtherMessagesForTheirReceives) {
  Star star(2);
  star.send(1, 15, 5);
  star.send(1, 16, 6);
  star.send(2, 25, 5);
  std::int32_t six = 0, five = 0, other = 0, source = 0;
  ASSERT_TRUE(drive({star.recv(six, source, 6).get()}).ok());
  EXPECT_EQ(six, 16);
  EXPECT_EQ(source, 1);
  ASSERT_TRUE(drive({star.recv(five, source, 5, 2).get()}).ok());
  EXPECT_EQ(five, 25);
  ASSERT_TRUE(drive({star.recv(other, source, 5).get()}).ok());  // was stored while tag 6 was awaited
  EXPECT_EQ(other, 15);
  EXPECT_EQ(source, 1);
}

TEST(AnySource, ReceivesMatchInTheOrderInWhichTheyWereMade) {
  Star star(2);
  std::int32_t any = 0, mine = 0, any_source = -1, source = -1;
  auto first = star.recv(any, any_source, 0), second = star.recv(mine, source, 0, 1);
  star.send(1, 1, 0);
  star.send(1, 2, 0);
  ASSERT_TRUE(drive({second.get(), first.get()}).ok());
  EXPECT_EQ(any, 1);
  EXPECT_EQ(mine, 2);
}

TEST(AnySource, ContinuesWithoutPeersThatLeftRegularly) {
  std::vector<bool> left(4);
  Star star(3, [&](int rank) { return left[std::size_t(rank)]; });
  std::int32_t value = 0, source = -1;
  star.send(1, 11, 0);
  star.fars[0].reset();
  left[1] = true;
  ASSERT_TRUE(drive({star.recv(value, source, 0).get()}).ok());  // the message it sent before it left
  EXPECT_EQ(source, 1);
  auto recv = star.recv(value, source, 0);
  EXPECT_FALSE(is_done(*recv));
  star.send(3, 33, 0);
  EXPECT_TRUE(is_done(*recv));
  EXPECT_EQ(source, 3);
  star.fars[1].reset();  // this peer did not leave regularly
  auto last = star.recv(value, source, 0);
  const Status status = drive({last.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().peer, 2);
}

TEST(AnySource, FailsWhenNoPeerIsLeftToSend) {
  Star star(2, [](int) { return true; });
  for (auto& link : star.fars) link.reset();
  std::int32_t value = 0, source = -1;
  auto recv = star.recv(value, source, 3);
  const Status status = drive({recv.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(to_string(status.error()), testing::AllOf(HasSubstr("recv #1 (i32[1], from any, tag 3)"),
                                                        HasSubstr("was the last that could have sent, and has left")));
}

TEST(AnySource, AMessageOfAnotherTypeIsAMismatch) {
  Star star(2);
  star.send(2, 5, 0);
  double value = 0;
  auto recv = star.zero->make_recv(
      {.kind = Kind::kRecv, .dtype = DType::kF64, .root = kAnySource, .out = &value, .count = 1}, 1);
  const Status status = drive({recv.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(to_string(status.error()), HasSubstr("this rank recv (f64[1], from any, tag 0)"));
}

// ---- notes ----

// Ranks 0 and 1, over links in memory that both see. Rank 0 sends messages with notes.
struct NotedPair {
  NotedPair() {
    transport::Link* const of_zero[] = {nullptr, first.get()};
    transport::Link* const of_one[] = {second.get(), nullptr};
    zero = std::make_unique<PointToPoint>(of_zero);
    one = std::make_unique<PointToPoint>(of_one);
  }
  std::unique_ptr<transport::ShmLink> link(int side) {
    const auto place = [side](std::size_t) -> Result<std::uint64_t> {
      return std::uint64_t(side) * transport::ShmLink::kCapacity;
    };
    return std::make_unique<transport::ShmLink>(&control, side, rings.data(), rings.data(), place,
                                                transport::Bell(&bells[1 - side], -1), &gone);
  }
  std::unique_ptr<NotedSend> send(std::size_t count, int tag) {
    Note note{};
    note[0] = std::byte(++sends);
    return zero->make_noted_send({.kind = Kind::kSend, .dtype = DType::kI32, .root = 1, .tag = tag, .count = count},
                                 sends, note);
  }
  std::unique_ptr<Operation> plain_send(const Ints& data, int tag) {
    return zero->make_send(
        {.kind = Kind::kSend, .dtype = DType::kI32, .root = 1, .tag = tag, .in = data.data(), .count = data.size()},
        ++sends);
  }
  std::unique_ptr<NotedRecv> recv(std::size_t count, int tag, int from = 0) {
    return one->make_noted_recv({.kind = Kind::kRecv, .dtype = DType::kI32, .root = from, .tag = tag, .count = count},
                                ++recvs);
  }
  std::unique_ptr<Operation> plain_recv(Ints& data, int tag) {
    return one->make_recv(
        {.kind = Kind::kRecv, .dtype = DType::kI32, .root = 0, .tag = tag, .out = data.data(), .count = data.size()},
        ++recvs);
  }
  transport::ShmLinkControl control{};
  std::vector<std::byte> rings = std::vector<std::byte>(2 * transport::ShmLink::kCapacity);
  transport::BellLine bells[2];
  std::atomic<bool> gone{false};
  std::unique_ptr<transport::ShmLink> first = link(0), second = link(1);
  std::unique_ptr<PointToPoint> zero, one;
  std::uint64_t sends = 0, recvs = 0;
};

using Arrived = NotedRecv::Arrived;

TEST(Notes, ASendEndsWhenItsNoteIsTaken) {
  NotedPair pair;
  for (int i = 1; i <= 2; ++i) {
    auto send = pair.send(5, 7);
    auto recv = pair.recv(5, 7, i == 1 ? 0 : kAnySource);
    EXPECT_FALSE(is_done(*send));
    EXPECT_FALSE(is_done(*recv));
    ASSERT_EQ(recv->arrived(), Arrived::kNote);
    EXPECT_EQ(recv->note()[0], std::byte(i));
    EXPECT_EQ(recv->sender(), 0);
    EXPECT_FALSE(is_done(*send));
    ASSERT_TRUE(recv->take().ok());
    EXPECT_TRUE(is_done(*recv));
    EXPECT_TRUE(is_done(*send));
  }
}

TEST(Notes, ElementsFollowADeclinedNoteBeforeTheNextMessage) {
  NotedPair pair;
  const Ints large(100'000, 3), next{4};
  Ints got(large.size()), got_next(1), got_large(large.size());
  auto send = pair.send(large.size(), 7);
  auto second = pair.plain_send(next, 7);
  auto recv = pair.plain_recv(got, 7), recv_next = pair.plain_recv(got_next, 7);
  EXPECT_FALSE(is_done(*second)) << "the note is not answered yet";
  EXPECT_FALSE(is_done(*recv));
  EXPECT_FALSE(is_done(*second));
  ASSERT_TRUE(send->needs_elements());
  send->give(large.data());
  ASSERT_TRUE(drive({send.get(), second.get(), recv_next.get(), recv.get()}).ok());
  EXPECT_EQ(got, large);
  EXPECT_EQ(got_next, next);
  // A receive that takes notes may decline, too.
  auto third = pair.send(large.size(), 7);
  auto noted = pair.recv(large.size(), 7);
  EXPECT_FALSE(is_done(*third));
  EXPECT_FALSE(is_done(*noted));
  ASSERT_TRUE(noted->decline().ok());
  EXPECT_EQ(noted->arrived(), Arrived::kElements);
  EXPECT_FALSE(is_done(*third));
  third->give(large.data());
  noted->put_into(got_large.data());
  ASSERT_TRUE(drive({third.get(), noted.get()}).ok());
  EXPECT_EQ(got_large, large);
}

TEST(Notes, AMessageThatIsStoredIsDeclined) {
  NotedPair pair;
  const Ints large(100'000, 3), next{4};
  Ints got(large.size()), got_next(1);
  auto send = pair.send(large.size(), 1);
  auto second = pair.plain_send(next, 2);
  auto recv_next = pair.plain_recv(got_next, 2);
  EXPECT_FALSE(is_done(*send));
  EXPECT_FALSE(is_done(*recv_next));
  EXPECT_FALSE(is_done(*send));
  ASSERT_TRUE(send->needs_elements());
  send->give(large.data());
  ASSERT_TRUE(drive({send.get(), second.get(), recv_next.get()}).ok());
  EXPECT_EQ(got_next, next);
  auto recv = pair.recv(large.size(), 1);
  EXPECT_FALSE(is_done(*recv));
  ASSERT_EQ(recv->arrived(), Arrived::kElements);
  recv->put_into(got.data());
  EXPECT_TRUE(is_done(*recv));
  EXPECT_EQ(got, large);
}

TEST(Notes, AReceiveTakesAMessageWithoutOne) {
  NotedPair pair;
  const Ints sent{1, 2, 3};
  Ints got(3);
  auto send = pair.plain_send(sent, 7);
  auto recv = pair.recv(3, 7);
  EXPECT_TRUE(is_done(*send));
  EXPECT_FALSE(is_done(*recv));
  ASSERT_EQ(recv->arrived(), Arrived::kElements);
  recv->put_into(got.data());
  EXPECT_TRUE(is_done(*recv));
  EXPECT_EQ(got, sent);
}

TEST(Notes, ACancelledSendFailsTheReceiveThatHasCopied) {
  NotedPair pair;
  auto send = pair.send(5, 7);
  auto recv = pair.recv(5, 7);
  EXPECT_FALSE(is_done(*send));
  EXPECT_FALSE(is_done(*recv));
  ASSERT_EQ(recv->arrived(), Arrived::kNote);
  send.reset();
  const Status taken = recv->take();
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(to_string(taken.error()),
            "Aborted: recv #1 (i32[5], from 0, tag 7): rank 0 at shm has cancelled the send of this message");
}

TEST(Notes, AMismatchShowsBothCalls) {
  NotedPair pair;
  auto send = pair.send(3, 7);
  auto recv = pair.recv(2, 7);
  const Status status = drive({send.get(), recv.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(
      to_string(status.error()),
      "Mismatch: recv #1 (i32[2], from 0, tag 7): rank 0 at shm called send (i32[3], to 1, tag 7), this rank recv "
      "(i32[2], from 0, tag 7) (hint: a receive needs the type and count that were sent)");
}

TEST(Notes, ASendThatAwaitsAnAnswerNamesALostPeer) {
  NotedPair pair;
  auto send = pair.send(3, 7);
  EXPECT_FALSE(is_done(*send));
  pair.gone = true;
  const Status status = drive({send.get()});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(to_string(status.error()), "PeerLost: send #1 (i32[3], to 1, tag 7): rank 1 at shm has exited");
}

}  // namespace
}  // namespace tutti::comm
