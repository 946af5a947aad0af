#include "tutti/launch/rounds/pulse.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/harness/limits.h"
#include "tutti/base/deadline.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const Credentials kPulseJob{.secret = Secret::from_text("sesame"), .job = "job"};
constexpr PulseTimes kFast{.period = milliseconds(20), .lost_after = milliseconds(400)};

template <class Condition>
bool soon(Condition condition) {
  const Deadline patience = Deadline::after(seconds(30));
  while (!condition() && !patience.expired()) usleep(2000);
  return condition();
}

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

TEST(Pulse, WithoutADescriptorOrAThreadIsAnError) {
  const auto center = PulseCenter::open("127.0.0.1", 0, kPulseJob, kFast).or_throw();
  const auto words_of = [](const auto& opened) { return opened.ok() ? "opened" : to_string(opened.error()); };
  for (const int more : {1, 2}) {  // the first is the socket, an agent needs two beside it
    const test::FewDescriptors few(more);
    EXPECT_THAT(words_of(Pulse::open(center->address(), 1, kPulseJob, kFast)), HasSubstr("cannot make an eventfd"));
    if (more > 1) continue;
    EXPECT_THAT(words_of(PulseCenter::open("127.0.0.1", 0, kPulseJob, kFast)), HasSubstr("cannot make an eventfd"));
  }
  const test::NoThreads none;
  EXPECT_THAT(words_of(PulseCenter::open("127.0.0.1", 0, kPulseJob, kFast)), HasSubstr("could not start a thread"));
  EXPECT_THAT(words_of(Pulse::open(center->address(), 1, kPulseJob, kFast)), HasSubstr("could not start a thread"));
}

TEST(Pulse, BothSidesAreWell) {
  auto center = PulseCenter::open("127.0.0.1", 0, kPulseJob, kFast).or_throw();
  center->expect(1);
  auto agent = Pulse::open(center->address(), 1, kPulseJob, kFast).or_throw();
  EXPECT_TRUE(soon([&] { return agent->ever_heard(); }));
  usleep(600'000);
  EXPECT_EQ(agent->state(), Pulse::State::kWell);
  EXPECT_TRUE(center->silent().empty());
}

TEST(Pulse, ADeadAgentIsCertain) {
  auto center =
      PulseCenter::open("127.0.0.1", 0, kPulseJob, {.period = milliseconds(20), .lost_after = seconds(60)}).or_throw();
  center->expect(1);
  auto agent = Pulse::open(center->address(), 1, kPulseJob, kFast).or_throw();
  ASSERT_TRUE(soon([&] { return agent->ever_heard(); }));
  agent.reset();
  ASSERT_TRUE(soon([&] { return !center->silent().empty(); }));
  EXPECT_TRUE(center->silent()[0].certain);
}

TEST(Pulse, ADeadCoordinatorIsGone) {
  auto center = PulseCenter::open("127.0.0.1", 0, kPulseJob, kFast).or_throw();
  center->expect(1);
  auto agent =
      Pulse::open(center->address(), 1, kPulseJob, {.period = milliseconds(20), .lost_after = seconds(60)}).or_throw();
  ASSERT_TRUE(soon([&] { return agent->ever_heard(); }));
  center.reset();
  EXPECT_TRUE(soon([&] { return agent->state() == Pulse::State::kGone; }));
}

TEST(Pulse, SilenceIsNoticedOnBothSides) {
  auto center = PulseCenter::open("127.0.0.1", 0, kPulseJob, kFast).or_throw();
  center->expect(1);
  auto stranger =
      Pulse::open(center->address(), 1, {.secret = Secret::from_text("guess"), .job = "job"}, kFast).or_throw();
  ASSERT_TRUE(soon([&] { return stranger->state() == Pulse::State::kSilent; }));
  ASSERT_TRUE(soon([&] { return !center->silent().empty(); })) << "a wrong secret keeps nobody alive";
  EXPECT_FALSE(center->silent()[0].certain);
}

TEST(Pulse, WhoIsNotCountedOnIsToldSo) {
  auto center = PulseCenter::open("127.0.0.1", 0, kPulseJob, kFast).or_throw();
  auto agent = Pulse::open(center->address(), 1, kPulseJob, kFast).or_throw();
  ASSERT_TRUE(soon([&] { return agent->ever_heard(); }));
  EXPECT_EQ(agent->state(), Pulse::State::kWell) << "it waits";
  agent->set_round(3);
  EXPECT_TRUE(soon([&] { return agent->state() == Pulse::State::kOut; }));
  center->expect(1);
  center->set_round(3);
  agent->set_round(3);
  usleep(200'000);
  EXPECT_EQ(agent->state(), Pulse::State::kWell);
  center->set_round(4);
  EXPECT_TRUE(soon([&] { return agent->state() == Pulse::State::kOut; }));
}

}  // namespace
}  // namespace tutti
