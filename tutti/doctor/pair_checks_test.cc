#include "tutti/doctor/pair_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "tutti/doctor/doctor_note.h"
#include "tutti/doctor/probe_command.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(Turns, BringEveryPairTogetherOnceAndNobodyTwiceATime) {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    std::set<std::pair<int, int>> met;
    for (const auto& turn : turns_of_pairs(nodes)) {
      std::set<int> busy;
      for (const auto& [a, b] : turn) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(met.emplace(a, b).second);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second);
      }
    }
    EXPECT_EQ(met.size(), std::size_t(nodes * (nodes - 1) / 2));
    EXPECT_LE(turns_of_pairs(nodes).size(), std::size_t(nodes));
  }
}

PairMeasure good(int from, int to) {
  return {.from = from,
          .to = to,
          .latency = 50e-6,
          .there = 1 << 30,
          .back = 1 << 30,
          .datagram_latency = 60e-6,
          .datagrams_lost = 0,
          .clock_offset = 0.001,
          .clock_error = 0.0001};
}
const std::map<int, std::string> kHosts = {{0, "a"}, {1, "b"}, {2, "c"}};

Finding judged(const PairMeasure& measure) {
  const auto findings = check_pairs({measure}, kHosts);
  return findings.empty() ? Finding() : findings.back();
}

TEST(Pairs, AGoodOne) {
  EXPECT_EQ(judged(good(0, 1)), (Finding{Grade::kOk, "a - b", "50 us one way, 1 GiB/s there, 1 GiB/s back", ""}));
}

TEST(Pairs, NoWay) {
  PairMeasure measure = good(0, 1);
  measure.trouble = "Unreachable: refused";
  EXPECT_EQ(judged(measure).fact, "a cannot reach b: Unreachable: refused");
  EXPECT_THAT(judged(measure).fix, HasSubstr("let the hosts of a job talk on all ports"));
  measure = good(0, 1);
  measure.back_trouble = "Timeout: nothing";
  const auto findings = check_pairs({measure}, kHosts);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].fact, "b cannot reach a: Timeout: nothing");
  EXPECT_EQ(findings[1].grade, Grade::kOk);
}

TEST(Pairs, LargeMessagesThatVanish) {
  PairMeasure measure = good(0, 1);
  measure.bulk_trouble = "Timeout: after 5 s";
  EXPECT_EQ(judged(measure).grade, Grade::kFail);
  EXPECT_EQ(judged(measure).fact, "small messages pass, large ones do not: Timeout: after 5 s");
  EXPECT_THAT(judged(measure).fix, HasSubstr("MTU"));
}

TEST(Pairs, ASlowOneIsFoundByComparison) {
  PairMeasure slow = good(1, 2);
  slow.there = 100 << 20;
  const auto findings = check_pairs({good(0, 1), good(0, 2), slow}, kHosts);
  EXPECT_EQ(findings[0].grade, Grade::kOk);
  EXPECT_EQ(findings[2].grade, Grade::kWarn);
  EXPECT_THAT(findings[2].fact, HasSubstr("10 % of what the median pair has"));
  EXPECT_THAT(findings[2].fix, HasSubstr("ethtool"));
}

TEST(Pairs, Datagrams) {
  PairMeasure measure = good(0, 1);
  measure.datagrams_lost = 0.3;
  EXPECT_EQ(judged(measure).fact, "30 % of the UDP datagrams were lost");
  measure.datagrams_lost = 1;
  EXPECT_EQ(judged(measure).grade, Grade::kFail);
  EXPECT_EQ(judged(measure).fact, "TCP passes, but no UDP datagram came back: nodes watch one another by UDP");
}

TEST(Pairs, ClocksThatDiffer) {
  PairMeasure measure = good(0, 1);
  measure.clock_offset = -3600;
  EXPECT_EQ(judged(measure).grade, Grade::kWarn);
  EXPECT_EQ(judged(measure).fact, "the clock of b is 1 h 0 min behind that of a");
  measure.clock_offset = 3, measure.clock_error = 2.5;  // it may be less than a second
  EXPECT_EQ(check_pairs({measure}, kHosts).size(), 1u);
}

TEST(Pairs, HalfAWorldApart) {
  PairMeasure measure = good(0, 1);
  measure.latency = 0.3;
  EXPECT_EQ(judged(measure).grade, Grade::kWarn);
  EXPECT_THAT(judged(measure).fix, HasSubstr("so far apart"));
}

// The real thing, from one thread to another.
TEST(Probe, MeasuresTheWayToAPeerThatAnswers) {
  const Credentials credentials{.secret = Secret::from_text("a secret of a test"), .job = "doctor"};
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
  const Credentials ours{.secret = Secret::from_text("ours"), .job = "doctor"},
      theirs{.secret = Secret::from_text("theirs"), .job = "doctor"};
  ProbePoint point = ProbePoint::open("127.0.0.1").or_throw();
  int over[2];
  ASSERT_EQ(::pipe(over), 0);
  std::thread peer([&] { point.answer(0, ours, over[0], Deadline::after_seconds(60)).or_throw(); });
  const PairMeasure measure = probe(0, 1, {point.stream(), point.datagrams()}, theirs, true);
  EXPECT_THAT(measure.trouble, HasSubstr("Refused"));
  ASSERT_EQ(::write(over[1], "x", 1), 1);  // and it still listens to those who tell it to stop
  peer.join();
  ::close(over[0]), ::close(over[1]);
}

TEST(Probe, NobodyIsSentMoreThanAMeasurementAsksFor) {
  const Credentials credentials{.secret = Secret::from_text("a secret of a test"), .job = "doctor"};
  ProbePoint point = ProbePoint::open("127.0.0.1").or_throw();
  int never[2];
  ASSERT_EQ(::pipe(never), 0);
  Status answered;
  std::thread peer([&] { answered = point.answer(0, credentials, never[0], Deadline::after_seconds(60)); });
  const Deadline deadline = Deadline::after_seconds(60);
  const Fd connection = connect(point.stream(), deadline).or_throw();
  handshake_as_client(connection.get(), credentials, {.role = Role::kData, .rank = 0, .channel = 0x0d0c}, deadline)
      .or_throw();
  const ProbeCommand endless{ProbeCommand::Kind::kTake, std::uint64_t(1) << 62};
  send_all(connection.get(), encode(endless), deadline).or_throw();
  peer.join();
  ASSERT_FALSE(answered.ok());
  EXPECT_THAT(to_string(answered.error()),
              HasSubstr("Limit: the other side asks for a transfer of 4611686018427387904"));
  ::close(never[0]), ::close(never[1]);
}

TEST(Notes, TravelAsJson) {
  DoctorNote note;
  note.host = "a", note.version = "1", note.ranks = 4;
  note.target.stream = {.host = "10.0.0.1", .port = 1};
  note.target.datagrams = {.host = "fd77::1", .port = 2};
  note.findings = {{Grade::kWarn, "x", "y", "z"}};
  const auto read = parse_doctor_note(encode(note));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(encode(*read), encode(note));
  EXPECT_EQ(read->target.datagrams.host, "fd77::1");
  for (const char* broken : {"", "[]", "{}", R"({"host":"a"})"})
    EXPECT_EQ(parse_doctor_note(broken).status().error().code, Code::kCorrupt) << broken;
}

}  // namespace
}  // namespace tutti
