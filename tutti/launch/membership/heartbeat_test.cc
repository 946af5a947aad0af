#include "tutti/launch/membership/heartbeat.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <memory>

#include "tests/harness/eventually.h"
#include "tests/harness/limits.h"
#include "tutti/base/sanitizers.h"

namespace tutti::launch::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const transport::Credentials kHeartbeatJob{.secret = transport::Secret::from_text("sesame"), .job = "job"};
constexpr HeartbeatTimes kTimes{.period = milliseconds(20), .lost_after = milliseconds(400)};
constexpr HeartbeatTimes kPatient{.period = milliseconds(20), .lost_after = seconds(60)};
const HeartbeatTable::Socket kFrom(16, std::byte(1)), kElsewhere(16, std::byte(2));

TEST(Liveness, OnlyANewClockValueOfOnesOwnProvesLife) {
  const auto at = [](std::int64_t ms) { return Clock::time_point(milliseconds(ms)); };
  const auto value = [](std::int64_t ms) { return std::uint64_t(ms) * 1'000'000; };
  Liveness life(at(1000));
  EXPECT_FALSE(life.heard().has_value());
  life.prove(value(1500), at(2000));
  EXPECT_EQ(life.silence(at(2000)), milliseconds(500));
  life.prove(value(1200), at(2100));  // sent again
  life.prove(value(9000), at(2100));  // not yet
  life.prove(0, at(2100));            // none
  EXPECT_EQ(life.silence(at(2100)), milliseconds(600));
  life.slept(milliseconds(300));
  EXPECT_EQ(life.silence(at(2100)), milliseconds(300));
  EXPECT_EQ(life.heard(), at(1500));
}

// A coordinator and an agent that exchange datagrams by function calls.
class Heartbeats : public testing::Test {
 protected:
  // A ping there and its echo back, a period later.
  void exchange() {
    time_ += kTimes.period;
    const auto ping = agent_.tick(time_);
    ASSERT_TRUE(ping.has_value());
    const auto echo = table_.receive(*ping, kFrom, time_);
    ASSERT_TRUE(echo.has_value());
    agent_.receive(*echo, time_);
  }

  Clock::time_point time_ = now();
  HeartbeatTable table_{kTimes, HeartbeatTable::Role::kCoordinator};
  HeartbeatClient agent_{1, kTimes, [this](std::int32_t) { return ++asked_ > 0; }, time_};
  int asked_ = 0;
};

TEST_F(Heartbeats, BothSidesAreWellWhileTheyHearEachOther) {
  table_.expect(1, time_);
  for (const auto end = time_ + 3 * kTimes.lost_after; time_ < end;) {
    exchange();
    ASSERT_EQ(agent_.state(), HeartbeatState::kWell);
    ASSERT_THAT(table_.silent(time_), IsEmpty());
  }
  EXPECT_TRUE(agent_.ever_heard());
}

TEST_F(Heartbeats, ADeadAgentIsCertainAfterASecondOfSilence) {
  table_.expect(1, time_);
  exchange();
  exchange();  // its second datagram proves that it lives
  time_ += kTimes.lost_after / 2;
  EXPECT_THAT(table_.silent(time_), IsEmpty());
  const auto questions = table_.questions(time_);
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(questions[0].first, kFrom);
  EXPECT_THAT(table_.questions(time_), IsEmpty()) << "once a period";
  table_.refused(kElsewhere);
  table_.refused(kFrom);
  EXPECT_THAT(table_.silent(time_), IsEmpty());
  const auto silent = table_.silent(time_ + seconds(1));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_TRUE(silent[0].certain);
}

TEST_F(Heartbeats, ADatagramTakesARefusalBack) {
  table_.expect(1, time_);
  exchange();
  table_.refused(kFrom);
  exchange();
  const auto silent = table_.silent(time_ + seconds(1));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_FALSE(silent[0].certain);
}

TEST_F(Heartbeats, SilenceIsNoticedOnBothSides) {
  table_.expect(1, time_);
  time_ += kTimes.lost_after / 2;
  EXPECT_TRUE(agent_.tick(time_).has_value());
  EXPECT_EQ(agent_.state(), HeartbeatState::kWell);
  EXPECT_THAT(table_.silent(time_), IsEmpty());
  EXPECT_LT(agent_.next_turn() - time_, kTimes.period) << "it asks more often now";
  time_ += kTimes.lost_after;
  agent_.tick(time_);
  EXPECT_EQ(agent_.state(), HeartbeatState::kSilent);
  const auto silent = table_.silent(time_);
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_FALSE(silent[0].certain);
  EXPECT_FALSE(table_.heard(1).has_value());
}

// A cut in one direction: the pings arrive, the echoes do not.
TEST_F(Heartbeats, APingAloneProvesNothing) {
  table_.expect(1, time_);
  for (const auto end = time_ + 2 * kTimes.lost_after; time_ < end; time_ += kTimes.period)
    if (const auto ping = agent_.tick(time_)) table_.receive(*ping, kFrom, time_);
  EXPECT_EQ(agent_.state(), HeartbeatState::kSilent);
  EXPECT_EQ(table_.silent(time_).size(), 1u);
}

TEST_F(Heartbeats, TimeInWhichThisProcessDidNotRunDoesNotCount) {
  table_.expect(1, time_);
  exchange();
  time_ += seconds(10);
  table_.slept(seconds(10));
  agent_.slept(seconds(10));
  agent_.tick(time_);
  EXPECT_EQ(agent_.state(), HeartbeatState::kWell);
  EXPECT_THAT(table_.silent(time_), IsEmpty());
}

TEST_F(Heartbeats, AnAgentThatIsNotAMemberGetsTheStateOut) {
  exchange();
  EXPECT_EQ(agent_.state(), HeartbeatState::kWell) << "it waits";
  agent_.set_round(3);
  exchange();
  EXPECT_EQ(agent_.state(), HeartbeatState::kOut);
  table_.expect(1, time_);
  table_.set_round(3);
  agent_.set_round(3);
  exchange();
  EXPECT_EQ(agent_.state(), HeartbeatState::kWell);
  table_.set_round(4);
  exchange();
  EXPECT_EQ(agent_.state(), HeartbeatState::kOut);
}

TEST_F(Heartbeats, APartitionedCoordinatorInformsAgentsInARound) {
  table_.expect(1, time_);
  table_.set_round(3);
  agent_.set_round(-1);
  table_.set_partitioned(true);
  exchange();
  EXPECT_EQ(agent_.state(), HeartbeatState::kWell) << "it waits";
  agent_.set_round(3);
  exchange();
  EXPECT_EQ(agent_.state(), HeartbeatState::kOut);
}

TEST_F(Heartbeats, AVoteIsGivenOnceItIsAskedFor) {
  table_.expect(1, time_);
  exchange();
  EXPECT_EQ(asked_, 0);
  table_.ask_votes(2);
  exchange();
  EXPECT_EQ(asked_, 1);
  EXPECT_THAT(table_.votes(2), IsEmpty()) << "it comes with the next ping";
  exchange();
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(table_.votes(2).count(1), 1u);
  EXPECT_THAT(table_.votes(1), IsEmpty());
}

TEST(Heartbeat, WithoutADescriptorOrAThreadIsAnError) {
  const auto center = HeartbeatCenter::open("127.0.0.1", 0, kHeartbeatJob, kTimes).or_throw();
  const auto text_of = [](const auto& opened) { return opened.ok() ? "opened" : to_string(opened.error()); };
  EXPECT_EQ(text_of(Heartbeat::open(center->address(), 1, kHeartbeatJob, kTimes)), "opened");
#if !TUTTI_ASAN                    // UBSan needs descriptors to look at the type of an object
  for (const int more : {1, 2}) {  // the first is the socket, an agent needs two beside it
    const test::FewDescriptors few(more);
    EXPECT_THAT(text_of(Heartbeat::open(center->address(), 1, kHeartbeatJob, kTimes)),
                HasSubstr("cannot make an eventfd"));
    if (more > 1) continue;
    EXPECT_THAT(text_of(HeartbeatCenter::open("127.0.0.1", 0, kHeartbeatJob, kTimes)),
                HasSubstr("cannot make an eventfd"));
  }
#endif
  const test::NoThreads none;
  EXPECT_THAT(text_of(HeartbeatCenter::open("127.0.0.1", 0, kHeartbeatJob, kTimes)),
              HasSubstr("could not start a thread"));
  EXPECT_THAT(text_of(Heartbeat::open(center->address(), 1, kHeartbeatJob, kTimes)),
              HasSubstr("could not start a thread"));
}

TEST(Heartbeat, AWrongSecretKeepsNoNodeAlive) {
  const auto center = HeartbeatCenter::open("127.0.0.1", 0, kHeartbeatJob, kTimes).or_throw();
  center->expect(1);
  const auto stranger =
      Heartbeat::open(center->address(), 1, {.secret = transport::Secret::from_text("guess"), .job = "job"}, kTimes)
          .or_throw();
  EXPECT_TRUE(test::eventually([&] { return stranger->lost() && !center->silent().empty(); }));
  EXPECT_FALSE(stranger->ever_heard());
  EXPECT_FALSE(center->heard(1).has_value());
}

// The kernel of its host refuses what is sent there.
TEST(Heartbeat, ADeadAgentIsCertain) {
  const auto center = HeartbeatCenter::open("127.0.0.1", 0, kHeartbeatJob, kPatient).or_throw();
  center->expect(1);
  auto agent = Heartbeat::open(center->address(), 1, kHeartbeatJob, kPatient).or_throw();
  EXPECT_TRUE(test::eventually([&] { return center->heard(1).has_value(); }));
  agent.reset();
  EXPECT_TRUE(test::eventually([&] { return !center->silent().empty(); }));
  EXPECT_TRUE(center->silent()[0].certain);
}

TEST(Heartbeat, ADeadCoordinatorIsGone) {
  auto center = HeartbeatCenter::open("127.0.0.1", 0, kHeartbeatJob, kTimes).or_throw();
  center->expect(1);
  const auto agent = Heartbeat::open(center->address(), 1, kHeartbeatJob, kPatient).or_throw();
  center.reset();
  pollfd event = {agent->fd(), POLLIN, 0};
  ASSERT_EQ(poll(&event, 1, 60'000), 1);
  EXPECT_EQ(agent->state(), HeartbeatState::kGone);
}

}  // namespace
}  // namespace tutti::launch::membership
