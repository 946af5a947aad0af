// A store, its successor and the voices of agents, in one process; what is lost is lost by silence of the wire.
#include "tutti/launch/membership/failover.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/harness/eventually.h"
#include "tests/harness/store_wire.h"
#include "tutti/launch/membership/keys.h"
#include "tutti/launch/membership/messages.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::eventually;
using test::StoreWire;

const Address kAny{.host = "127.0.0.1"};
const Credentials kJob{.secret = Secret::from_text("open sesame, said the store"), .job = "job"};
constexpr HeartbeatTimes kFast{.period = milliseconds(20), .lost_after = milliseconds(400)};

// Agent 1 serves, agent 2 keeps the copy, the others only have a voice.
class Succession : public testing::Test {
 protected:
  Succession() {
    Participants roster{.round = 0, .nodes = {}, .past = {}, .successor = id_of(2)};
    for (std::uint64_t number = 1; number <= 3; ++number) roster.nodes.push_back({.id = id_of(number)});
    begin(std::move(roster));
  }
  void begin(Participants roster) {
    Electorate electorate{.round = roster.round, .members = {}};
    for (const JoinRequest& comer : roster.nodes) electorate.members.push_back(number_of(comer.id));
    primary_->local()->set(keys::kRoster, encode(roster)).or_throw();
    incumbent_.set_electorate(std::move(electorate));
  }
  void follow() {
    successor_ = FailoverStandby::follow({.self = 2,
                                          .host = "127.0.0.1",
                                          .primary = wire_.address(),
                                          .credentials = kJob,
                                          .times = kFast,
                                          .ballot = ballots_[2],
                                          .say = [](const std::string&) {}},
                                         Deadline::after(seconds(60)))
                     .or_throw();
  }
  std::unique_ptr<Heartbeat> pulse(std::uint64_t agent, const std::string& center, std::uint64_t candidate,
                                   HeartbeatTurns turns = HeartbeatTurns::kOfThread) {
    const auto voter = [this, agent, candidate](int round) {
      ++asked_[agent];
      return ballots_[agent]->give(round, candidate);
    };
    return Heartbeat::open(center, agent, kJob, kFast, voter, turns).or_throw();
  }
  bool primary_goes_on() const {
    auto store = primary_->local();
    store->set_call_timeout(milliseconds(100));
    return store->set("k", "v").ok();
  }
  bool successor_serves() const { return successor_->standing() == StoreRole::kPrimary; }

  const std::shared_ptr<Vote> ballots_[4] = {nullptr, std::make_shared<Vote>(), std::make_shared<Vote>(),
                                             std::make_shared<Vote>()};
  std::atomic<int> asked_[4] = {};  // for the voice of an agent
  std::unique_ptr<StoreServer> primary_ = StoreServer::start(kAny, kJob).or_throw();
  std::unique_ptr<HeartbeatCenter> center_ = HeartbeatCenter::open("127.0.0.1", 0, kJob, kFast).or_throw();
  FailoverPrimary incumbent_{*primary_, *center_, *ballots_[1], 1, [](const std::string&) {}};
  StoreWire wire_{primary_->address()};
  std::unique_ptr<FailoverStandby> successor_;
};

TEST_F(Succession, TheMajorityLetsTheSuccessorServe) {
  follow();
  wire_.silence(true);
  const auto third = pulse(3, successor_->box(), 2);
  successor_->primary_is_lost(false);
  EXPECT_TRUE(eventually([&] { return successor_serves(); }));
  EXPECT_TRUE(eventually([&] { return incumbent_.is_cut_off(); }));
  const int asked = asked_[3];
  const auto late = pulse(3, center_->address(), 1);
  EXPECT_TRUE(eventually([&] { return asked_[3] > asked; })) << "it has no voice left";
  EXPECT_FALSE(primary_goes_on());
  EXPECT_TRUE(primary_->in_doubt());
}

TEST_F(Succession, HalfOfTheNodesLetThePrimaryGoOn) {
  follow();
  const auto third = pulse(3, center_->address(), 1);
  EXPECT_TRUE(eventually([&] { return third->ever_heard(); }));
  wire_.silence(true);
  successor_->primary_is_lost(false);
  EXPECT_TRUE(eventually(
      [&] { return primary_->role() == StoreRole::kPrimary && !primary_->in_doubt() && primary_goes_on(); }));
  const int asked = asked_[3];
  const auto late = pulse(3, successor_->box(), 2);
  EXPECT_TRUE(eventually([&] { return asked_[3] > asked; })) << "it has no voice left";
  EXPECT_FALSE(successor_serves());
  EXPECT_FALSE(incumbent_.is_cut_off());
}

TEST_F(Succession, AloneNeitherGoesOn) {
  follow();
  const auto third = Heartbeat::open(center_->address(), 3, kJob, kFast).or_throw();  // is heard, and says nothing
  third->set_round(0);
  center_->expect(3);
  center_->set_round(0);
  wire_.silence(true);
  successor_->primary_is_lost(true);
  EXPECT_TRUE(eventually([&] { return incumbent_.is_cut_off(); }));
  EXPECT_TRUE(eventually([&] { return third->state() == Heartbeat::State::kOut; })) << "nobody may count on this side";
  EXPECT_FALSE(primary_goes_on());
  EXPECT_FALSE(successor_serves());
}

TEST_F(Succession, OfTwoNodesTheSuccessorNeedsTheEndOfTheFirst) {
  begin({.round = 1, .nodes = {{.id = id_of(1)}, {.id = id_of(2)}}, .past = {}, .successor = id_of(2)});
  follow();
  wire_.silence(true);
  EXPECT_TRUE(eventually([&] { return primary_goes_on(); })) << "the tie is the primary's";
  const int looks = wire_.connections();
  successor_->primary_is_lost(true);
  EXPECT_TRUE(eventually([&] { return wire_.connections() > looks; })) << "it looks whether anybody listens there";
  successor_->turn();
  EXPECT_FALSE(successor_serves()) << "somebody does";
}

TEST_F(Succession, WithoutDoubtNothingIsDecided) {
  follow();
  successor_->primary_is_lost(false);
  const auto third = pulse(3, successor_->box(), 2, HeartbeatTurns::kOfOwner);
  for (auto time = now(); asked_[3] == 0; time += kFast.period) {
    third->turn(time);
    ASSERT_TRUE(wait_readable(third->socket(), Deadline::after(seconds(60))).or_throw());
  }
  // The answer to the datagram that had its voice is there: the successor has the voices of both.
  successor_->turn();
  EXPECT_FALSE(successor_serves());
  EXPECT_TRUE(primary_goes_on());
}

TEST_F(Succession, ABallotBoxIsNoCoordinator) {
  follow();
  const auto agent = pulse(3, successor_->box(), 2);
  EXPECT_TRUE(eventually([&] { return agent->state() == Heartbeat::State::kSilent; }));
  EXPECT_FALSE(agent->ever_heard());
}

TEST_F(Succession, WhatIsReleasedServesOn) {
  follow();
  wire_.silence(true);
  const auto third = pulse(3, successor_->box(), 2);
  successor_->primary_is_lost(false);
  EXPECT_TRUE(eventually([&] { return successor_serves(); }));
  const auto server = successor_->release();
  EXPECT_TRUE(parse_roster(server->local()->get(keys::kRoster, Deadline::after(seconds(10))).or_throw()).has_value());
}

}  // namespace
}  // namespace tutti
