#include "tutti/launch/membership/heartbeat.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <memory>

#include "tests/harness/limits.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const Credentials kPulseJob{.secret = Secret::from_text("sesame"), .job = "job"};
constexpr HeartbeatTimes kFast{.period = milliseconds(20), .lost_after = milliseconds(400)};

void await(int descriptor) {
  pollfd event = {descriptor, POLLIN, 0};
  ASSERT_EQ(poll(&event, 1, 60'000), 1);
}

// A coordinator and an agent without threads, whose clock the test has.
class PulseByHand : public testing::Test {
 protected:
  std::unique_ptr<Heartbeat> open_agent(const Credentials& credentials) const {
    return Heartbeat::open(center_->address(), 1, credentials, kFast, {}, HeartbeatTurns::kOfOwner).or_throw();
  }
  // Datagrams there and back, a period later.
  void exchange() {
    time_ += kFast.period;
    agent_->turn(time_);
    await(center_->socket());
    center_->turn(time_);
    await(agent_->socket());
    agent_->turn(time_);
  }

  std::unique_ptr<HeartbeatCenter> center_ =
      HeartbeatCenter::open("127.0.0.1", 0, kPulseJob, kFast, HeartbeatCenter::Part::kCoordinator,
                            HeartbeatTurns::kOfOwner)
          .or_throw();
  std::unique_ptr<Heartbeat> agent_ = open_agent(kPulseJob);
  Clock::time_point time_ = now();
};

TEST(PulseDatagram, IsReadAsItWasWrittenAndByNobodyElse) {
  const auto key = pulse::key_of(kPulseJob);
  const pulse::Datagram datagram{
      .kind = pulse::Datagram::Kind::kEcho, .out = true, .round = 7, .id = 5, .own = 8, .other = 9};
  const auto bytes = pulse::encode(datagram, key);
  EXPECT_EQ(pulse::decode(bytes, key), datagram);
  EXPECT_FALSE(pulse::decode(bytes, pulse::key_of({.secret = Secret::from_text("sesame"), .job = "other"})));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto wrong = bytes;
    wrong[i] ^= std::byte(1);
    EXPECT_FALSE(pulse::decode(wrong, key)) << i;
  }
  EXPECT_FALSE(pulse::decode(std::span(bytes).first(40), key));
}

TEST(PulseLife, OnlyANewClockValueOfOnesOwnProves) {
  const auto at = [](std::int64_t ms) { return Clock::time_point(milliseconds(ms)); };
  const auto value = [](std::int64_t ms) { return std::uint64_t(ms) * 1'000'000; };
  pulse::Life life(at(1000));
  life.prove(value(1500), at(2000));
  EXPECT_EQ(life.silence(at(2000)), milliseconds(500));
  life.prove(value(1200), at(2100));  // sent again
  life.prove(value(9000), at(2100));  // not yet
  life.prove(0, at(2100));            // none
  EXPECT_EQ(life.silence(at(2100)), milliseconds(600));
  life.slept(milliseconds(300));
  EXPECT_EQ(life.silence(at(2100)), milliseconds(300));
}

TEST(Heartbeat, WithoutADescriptorOrAThreadIsAnError) {
  const auto center = HeartbeatCenter::open("127.0.0.1", 0, kPulseJob, kFast).or_throw();
  const auto words_of = [](const auto& opened) { return opened.ok() ? "opened" : to_string(opened.error()); };
  for (const int more : {1, 2}) {  // the first is the socket, an agent needs two beside it
    const test::FewDescriptors few(more);
    EXPECT_THAT(words_of(Heartbeat::open(center->address(), 1, kPulseJob, kFast)), HasSubstr("cannot make an eventfd"));
    if (more > 1) continue;
    EXPECT_THAT(words_of(HeartbeatCenter::open("127.0.0.1", 0, kPulseJob, kFast)), HasSubstr("cannot make an eventfd"));
  }
  const test::NoThreads none;
  EXPECT_THAT(words_of(HeartbeatCenter::open("127.0.0.1", 0, kPulseJob, kFast)), HasSubstr("could not start a thread"));
  EXPECT_THAT(words_of(Heartbeat::open(center->address(), 1, kPulseJob, kFast)), HasSubstr("could not start a thread"));
}

TEST_F(PulseByHand, BothSidesAreWellWhileTheyHearEachOther) {
  center_->expect(1);
  for (const auto end = time_ + 3 * kFast.lost_after; time_ < end;) {
    exchange();
    ASSERT_EQ(agent_->state(), Heartbeat::State::kWell);
    ASSERT_TRUE(center_->silent(time_).empty());
  }
  EXPECT_TRUE(agent_->ever_heard());
}

TEST_F(PulseByHand, ADeadAgentIsCertain) {
  center_->expect(1);
  exchange();
  exchange();  // its second datagram proves that it lives
  agent_.reset();
  time_ += kFast.lost_after / 2;
  EXPECT_TRUE(center_->silent(time_).empty());
  center_->turn(time_);  // asks, and its host refuses
  await(center_->socket());
  center_->turn(time_);
  EXPECT_TRUE(center_->silent(time_).empty());
  const auto silent = center_->silent(time_ + seconds(1));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_TRUE(silent[0].certain);
}

TEST_F(PulseByHand, SilenceIsNoticedOnBothSides) {
  center_->expect(1);
  const auto stranger = open_agent({.secret = Secret::from_text("guess"), .job = "job"});
  stranger->turn(time_);
  await(center_->socket());
  time_ += kFast.lost_after / 2;
  center_->turn(time_);
  stranger->turn(time_);
  EXPECT_EQ(stranger->state(), Heartbeat::State::kWell);
  EXPECT_TRUE(center_->silent(time_).empty());
  time_ += kFast.lost_after;
  stranger->turn(time_);
  EXPECT_EQ(stranger->state(), Heartbeat::State::kSilent);
  ASSERT_EQ(center_->silent(time_).size(), 1u) << "a wrong secret keeps nobody alive";
  EXPECT_FALSE(center_->silent(time_)[0].certain);
}

TEST_F(PulseByHand, WhoIsNotCountedOnIsToldSo) {
  exchange();
  EXPECT_EQ(agent_->state(), Heartbeat::State::kWell) << "it waits";
  agent_->set_round(3);
  exchange();
  EXPECT_EQ(agent_->state(), Heartbeat::State::kOut);
  center_->expect(1);
  center_->set_round(3);
  agent_->set_round(3);
  exchange();
  EXPECT_EQ(agent_->state(), Heartbeat::State::kWell);
  center_->set_round(4);
  exchange();
  EXPECT_EQ(agent_->state(), Heartbeat::State::kOut);
}

TEST(Heartbeat, ADeadCoordinatorIsGone) {
  auto center = HeartbeatCenter::open("127.0.0.1", 0, kPulseJob, kFast).or_throw();
  center->expect(1);
  const auto agent =
      Heartbeat::open(center->address(), 1, kPulseJob, {.period = milliseconds(20), .lost_after = seconds(60)})
          .or_throw();
  center.reset();
  await(agent->descriptor());
  EXPECT_EQ(agent->state(), Heartbeat::State::kGone);
}

}  // namespace
}  // namespace tutti
