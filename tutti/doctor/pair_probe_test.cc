#include "tutti/doctor/pair_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <thread>

namespace tutti::doctor {
namespace {

using ::testing::HasSubstr;
using enum ProbeCommand::Kind;

constexpr std::uint64_t kMost = ProbeCommand::kMostTransfer, kLargest = std::numeric_limits<std::uint64_t>::max();

TEST(ProbeCommands, ArriveAsTheyWereSent) {
  for (const ProbeCommand command :
       {ProbeCommand{kClock, 0}, ProbeCommand{kClock, kLargest}, ProbeCommand{kTake, 0}, ProbeCommand{kTake, kMost},
        ProbeCommand{kGive, kMost}, ProbeCommand{kDatagrams, kLargest}, ProbeCommand{kGoodbye, 7}}) {
    const auto parsed = parse_probe_command(encode(command));
    ASSERT_TRUE(parsed.ok()) << to_string(parsed.error());
    EXPECT_EQ(*parsed, command);
  }
}

TEST(ProbeCommands, NoTransferIsLargerThanAMeasurementAsksFor) {
  for (const auto kind : {kTake, kGive}) {
    for (const std::uint64_t bytes : {kMost + 1, kLargest}) {
      const auto parsed = parse_probe_command(encode({kind, bytes}));
      ASSERT_FALSE(parsed.ok());
      EXPECT_EQ(parsed.error().code, Code::kLimit);
      EXPECT_EQ(parsed.error().detail, "the peer asks for a transfer of " + std::to_string(bytes) +
                                           " bytes; a measurement asks for 1073741824 at most");
    }
  }
}

TEST(ProbeCommands, ALetterThatMeansNothingIsNone) {
  for (int letter = 0; letter < 256; ++letter) {
    auto bytes = encode(ProbeCommand{});
    bytes[0] = std::byte(letter);
    const bool known = letter == 'P' || letter == 'S' || letter == 'R' || letter == 'U' || letter == 'Q';
    const auto parsed = parse_probe_command(bytes);
    ASSERT_EQ(parsed.ok(), known) << letter;
    if (known) continue;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
    EXPECT_THAT(parsed.error().detail, HasSubstr("begins with byte " + std::to_string(letter)));
  }
}

// A real probe, from one thread to another.
TEST(Probe, MeasuresTheWayToAPeerThatAnswers) {
  const transport::Credentials credentials{.secret = transport::Secret::from_text("a secret of a test"),
                                           .job = "doctor"};
  ProbePoint point = ProbePoint::open("127.0.0.1").or_throw();
  int never[2];
  ASSERT_EQ(::pipe(never), 0);
  std::thread peer([&] { point.answer(0, credentials, never[0], Deadline::after_seconds(60)).or_throw(); });
  const PairMeasure measure = probe(0, 1, {point.stream(), point.datagrams()}, credentials, true);
  peer.join();
  EXPECT_EQ(measure.trouble + measure.bulk_trouble, "");
  EXPECT_GT(measure.latency, 0);
  EXPECT_GT(measure.there, 0);
  EXPECT_GT(measure.back, 0);
  EXPECT_LT(measure.datagrams_lost, 1);
  EXPECT_LE(std::abs(measure.clock_offset), measure.clock_error + 1e-3);  // it is one clock
  EXPECT_EQ(to_json(*pair_measure_from_json(to_json(measure))), to_json(measure));
  ::close(never[0]), ::close(never[1]);
}

TEST(Probe, AStrangerIsTurnedAway) {
  const transport::Credentials ours{.secret = transport::Secret::from_text("ours"), .job = "doctor"},
      theirs{.secret = transport::Secret::from_text("theirs"), .job = "doctor"};
  ProbePoint point = ProbePoint::open("127.0.0.1").or_throw();
  int over[2];
  ASSERT_EQ(::pipe(over), 0);
  std::thread peer([&] { point.answer(0, ours, over[0], Deadline::after_seconds(60)).or_throw(); });
  const PairMeasure measure = probe(0, 1, {point.stream(), point.datagrams()}, theirs, true);
  EXPECT_THAT(measure.trouble, HasSubstr("Refused"));
  ASSERT_EQ(::write(over[1], "x", 1), 1);  // it still obeys the descriptor that ends the wait
  peer.join();
  ::close(over[0]), ::close(over[1]);
}

TEST(Probe, NoPeerIsSentMoreThanAMeasurementAsksFor) {
  const transport::Credentials credentials{.secret = transport::Secret::from_text("a secret of a test"),
                                           .job = "doctor"};
  ProbePoint point = ProbePoint::open("127.0.0.1").or_throw();
  int never[2];
  ASSERT_EQ(::pipe(never), 0);
  Status answered;
  std::thread peer([&] { answered = point.answer(0, credentials, never[0], Deadline::after_seconds(60)); });
  const Deadline deadline = Deadline::after_seconds(60);
  const Fd connection = connect(point.stream(), deadline).or_throw();
  transport::handshake_as_client(connection.get(), credentials,
                                 {.role = transport::Role::kData, .rank = 0, .channel = 0x0d0c}, deadline)
      .or_throw();
  const ProbeCommand endless{ProbeCommand::Kind::kTake, std::uint64_t(1) << 62};
  transport::send_all(connection.get(), encode(endless), deadline).or_throw();
  peer.join();
  ASSERT_FALSE(answered.ok());
  EXPECT_THAT(to_string(answered.error()), HasSubstr("Limit: the peer asks for a transfer of 4611686018427387904"));
  ::close(never[0]), ::close(never[1]);
}

}  // namespace
}  // namespace tutti::doctor
