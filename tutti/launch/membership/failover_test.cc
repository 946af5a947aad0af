// The rule of votes, tried out; a store, its standby and the votes of agents in one process, where the wire falls
// silent; and redirects.
#include "tutti/launch/membership/failover.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <future>
#include <optional>
#include <vector>

#include "tests/harness/eventually.h"
#include "tests/harness/store_wire.h"
#include "tutti/launch/membership/protocol.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/address.h"
#include "tutti/transport/socket.h"

namespace tutti::launch::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::eventually;
using test::StoreWire;

const transport::Address kAny{.host = "127.0.0.1"};
const transport::Credentials kJob{.secret = transport::Secret::from_text("open sesame, said the store"), .job = "job"};
constexpr HeartbeatTimes kFast{.period = milliseconds(20), .lost_after = milliseconds(400)};

// ---- votes ----

constexpr std::uint64_t kPrimary = 1, kStandby = 2;

TEST(Vote, IsGivenOnceInARound) {
  Vote vote;
  EXPECT_TRUE(vote.give(3, kPrimary));
  EXPECT_TRUE(vote.give(3, kPrimary)) << "said again";
  EXPECT_FALSE(vote.give(3, kStandby));
  EXPECT_TRUE(vote.give(4, kStandby));
  EXPECT_FALSE(vote.give(4, kPrimary));
  EXPECT_FALSE(vote.give(3, kPrimary)) << "an earlier round decides nothing any more";
}

TEST(Vote, OnlyMembersHaveOne) {
  const Voters voters{.round = 0, .members = {1, 2, 3}};
  EXPECT_EQ(voters.count({}), 0U);
  EXPECT_EQ(voters.count({1, 3, 7, 8}), 2U);
}

TEST(Vote, ATieIsForThePrimary) {
  const Voters two{.round = 0, .members = {1, 2}}, three{.round = 0, .members = {1, 2, 3}};
  EXPECT_TRUE(two.enough_for_primary(1));
  EXPECT_FALSE(two.enough_for_standby(1));
  EXPECT_FALSE(three.enough_for_primary(1));
  EXPECT_FALSE(three.enough_for_standby(1));
  EXPECT_TRUE(three.enough_for_primary(2));
  EXPECT_TRUE(three.enough_for_standby(2));
}

// Every way in which up to nine nodes can vote: for one, for the other, for neither.
TEST(Vote, NeverLetsBothContinue) {
  for (std::size_t nodes = 1; nodes <= 9; ++nodes) {
    Voters voters{.round = 0, .members = {}};
    std::size_t ways = 1;
    for (std::size_t node = 0; node < nodes; ++node) voters.members.push_back(node), ways *= 3;
    for (std::size_t way = 0; way < ways; ++way) {
      std::set<std::uint64_t> votes[3];
      std::size_t rest = way;
      for (std::size_t node = 0; node < nodes; ++node, rest /= 3) {
        Vote vote;
        const std::size_t choice = rest % 3;
        for (const std::uint64_t candidate : {kPrimary, kStandby})  // both ask, in one order or the other
          if (const auto first = choice == 1 ? candidate : kPrimary + kStandby - candidate;
              choice < 2 && vote.give(0, first))
            votes[first].insert(node);
      }
      EXPECT_FALSE(voters.enough_for_primary(voters.count(votes[kPrimary])) &&
                   voters.enough_for_standby(voters.count(votes[kStandby])));
    }
  }
}

// ---- the primary and its standby ----

// Agent 1 serves, agent 2 keeps the copy, the others only vote.
class Failover : public testing::Test {
 protected:
  Failover() {
    Participants participants{.round = 0, .nodes = {}, .past = {}, .standby = id_of(2)};
    for (std::uint64_t number = 1; number <= 3; ++number) participants.nodes.push_back({.id = id_of(number)});
    begin(std::move(participants));
  }
  void begin(Participants participants) {
    Voters voters = Voters::of(participants);
    primary_->local()->set(keys::kParticipants, encode(participants)).or_throw();
    primary_failover_.set_voters(std::move(voters));
  }
  void follow() {
    standby_ = FailoverStandby::follow({.self = 2,
                                        .host = "127.0.0.1",
                                        .primary = wire_.address(),
                                        .credentials = kJob,
                                        .times = kFast,
                                        .vote = votes_[2],
                                        .say = [](const std::string&) {}},
                                       Deadline::after(seconds(60)))
                   .or_throw();
  }
  Voter voter(std::uint64_t agent, std::uint64_t candidate) {
    return [this, agent, candidate](int round) {
      ++asked_[agent];
      return votes_[agent]->give(round, candidate);
    };
  }
  std::unique_ptr<Heartbeat> heartbeat(std::uint64_t agent, const std::string& center, std::uint64_t candidate) {
    return Heartbeat::open(center, agent, kJob, kFast, voter(agent, candidate)).or_throw();
  }
  bool primary_continues() const {
    auto store = primary_->local();
    store->set_call_timeout(milliseconds(100));
    return store->set("k", "v").ok();
  }
  bool standby_serves() const { return standby_->role() == StoreRole::kPrimary; }

  const std::shared_ptr<Vote> votes_[4] = {nullptr, std::make_shared<Vote>(), std::make_shared<Vote>(),
                                           std::make_shared<Vote>()};
  std::atomic<int> asked_[4] = {};  // for the vote of an agent
  std::unique_ptr<StoreServer> primary_ = StoreServer::start(kAny, kJob).or_throw();
  std::unique_ptr<HeartbeatCenter> center_ = HeartbeatCenter::open("127.0.0.1", 0, kJob, kFast).or_throw();
  FailoverPrimary primary_failover_{*primary_, *center_, *votes_[1], 1, [](const std::string&) {}};
  StoreWire wire_{primary_->address()};
  std::unique_ptr<FailoverStandby> standby_;
};

TEST_F(Failover, AMajorityLetsTheStandbyServe) {
  follow();
  wire_.silence(true);
  const auto third = heartbeat(3, standby_->votes_address(), 2);
  standby_->primary_is_lost(false);
  EXPECT_TRUE(eventually([&] { return standby_serves(); }));
  EXPECT_TRUE(eventually([&] { return primary_failover_.is_cut_off(); }));
  const int asked = asked_[3];
  const auto late = heartbeat(3, center_->address(), 1);
  EXPECT_TRUE(eventually([&] { return asked_[3] > asked; })) << "it has no vote left";
  EXPECT_FALSE(primary_continues());
  EXPECT_TRUE(primary_->in_doubt());
}

TEST_F(Failover, HalfOfTheNodesLetThePrimaryContinue) {
  follow();
  const auto third = heartbeat(3, center_->address(), 1);
  EXPECT_TRUE(eventually([&] { return third->ever_heard(); }));
  wire_.silence(true);
  standby_->primary_is_lost(false);
  EXPECT_TRUE(eventually(
      [&] { return primary_->role() == StoreRole::kPrimary && !primary_->in_doubt() && primary_continues(); }));
  const int asked = asked_[3];
  const auto late = heartbeat(3, standby_->votes_address(), 2);
  EXPECT_TRUE(eventually([&] { return asked_[3] > asked; })) << "it has no vote left";
  EXPECT_FALSE(standby_serves());
  EXPECT_FALSE(primary_failover_.is_cut_off());
}

TEST_F(Failover, AloneNeitherContinues) {
  follow();
  const auto third = Heartbeat::open(center_->address(), 3, kJob, kFast).or_throw();  // is heard, and says nothing
  third->set_round(0);
  center_->expect(3);
  center_->set_round(0);
  wire_.silence(true);
  standby_->primary_is_lost(true);
  EXPECT_TRUE(eventually([&] { return primary_failover_.is_cut_off(); }));
  EXPECT_TRUE(eventually([&] { return third->state() == HeartbeatState::kOut; })) << "nobody may count on this side";
  EXPECT_FALSE(primary_continues());
  EXPECT_FALSE(standby_serves());
}

TEST_F(Failover, OfTwoNodesTheStandbyNeedsTheEndOfThePrimary) {
  begin({.round = 1, .nodes = {{.id = id_of(1)}, {.id = id_of(2)}}, .past = {}, .standby = id_of(2)});
  follow();
  wire_.silence(true);
  EXPECT_TRUE(eventually([&] { return primary_continues(); })) << "the tie is the primary's";
  const int looks = wire_.connections();
  standby_->primary_is_lost(true);
  EXPECT_TRUE(eventually([&] { return wire_.connections() > looks; })) << "it looks whether anybody listens there";
  standby_->turn();
  EXPECT_FALSE(standby_serves()) << "somebody does";
}

TEST_F(Failover, WithoutDoubtNothingIsDecided) {
  follow();
  standby_->primary_is_lost(false);
  // An agent by hand, so that it is certain when its vote has arrived.
  auto there = transport::to_socket_address(transport::parse_address(standby_->votes_address()).or_throw()).or_throw();
  const Fd socket(::socket(there.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(socket.get(), there.get(), there.length), 0);
  const auto key = heartbeat_key(kJob);
  auto time = now();
  HeartbeatClient third(3, kFast, voter(3, 2), time);
  const auto exchange = [&] {
    const auto ping = encode(third.tick(time).value(), key);
    ASSERT_EQ(::send(socket.get(), ping.data(), ping.size(), 0), ssize_t(ping.size()));
    ASSERT_TRUE(transport::wait_readable(socket.get(), Deadline::after(seconds(60))).or_throw());
    std::array<std::byte, kDatagramBytes> bytes;
    ASSERT_EQ(::recv(socket.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
    third.receive(parse_datagram(bytes, key).value(), time);
    time += kFast.period;
  };
  while (asked_[3] == 0 && !HasFatalFailure()) exchange();
  exchange();  // with its vote, which is answered: the standby has the votes of both
  standby_->turn();
  EXPECT_FALSE(standby_serves());
  EXPECT_TRUE(primary_continues());
}

TEST_F(Failover, TakingVotesIsNoSignOfACoordinator) {
  follow();
  const auto agent = heartbeat(3, standby_->votes_address(), 2);
  EXPECT_TRUE(eventually([&] { return agent->state() == HeartbeatState::kSilent; }));
  EXPECT_FALSE(agent->ever_heard());
}

TEST_F(Failover, AReleasedServerServes) {
  follow();
  wire_.silence(true);
  const auto third = heartbeat(3, standby_->votes_address(), 2);
  standby_->primary_is_lost(false);
  EXPECT_TRUE(eventually([&] { return standby_serves(); }));
  const auto server = standby_->release();
  EXPECT_TRUE(parse_participants(server->local()->get(keys::kParticipants, Deadline::after(seconds(10))).or_throw())
                  .has_value());
}

// ---- redirects ----

const transport::Address kHere{.host = "10.0.0.2", .port = 29400};

std::string redirect_in(StoreServer& server) {
  return server.local()->get(keys::kMoved, Deadline::after(seconds(60))).or_throw();
}

TEST(Redirect, LeadsAwayFromAStoreAtTheFormerAddress) {
  const transport::Address former = listen(kAny).or_throw().address;
  std::atomic<int> said = 0;
  std::optional<Redirect> redirect;
  redirect.emplace(std::vector{former}, kHere, kJob, [&](const std::string&) { ++said; });
  const auto server = StoreServer::start(former, kJob).or_throw();
  EXPECT_EQ(redirect_in(*server), "10.0.0.2:29400");
  EXPECT_TRUE(test::eventually([&] { return server->counts().let_in >= 2; })) << "it looks again";
  redirect.reset();  // after that look
  EXPECT_EQ(said, 1);
}

TEST(Redirect, ReplacesAnOlderRedirect) {
  const auto server = StoreServer::start(kAny, kJob).or_throw();
  server->local()->set(keys::kMoved, "10.0.0.9:1").or_throw();
  std::promise<void> said;
  const Redirect redirect({server->address()}, kHere, kJob, [&](const std::string&) { said.set_value(); });
  EXPECT_EQ(said.get_future().wait_for(seconds(60)), std::future_status::ready);
  EXPECT_EQ(redirect_in(*server), "10.0.0.2:29400");
}

// This node may be the one that the store was taken over from.
TEST(Redirect, LeavesAStoreAloneThatTookOver) {
  const auto server = StoreServer::start(kAny, kJob).or_throw();
  server->local()->set(keys::kFormer, to_string(kHere)).or_throw();
  const auto calls = server->counts().calls;
  const Redirect redirect({server->address()}, kHere, kJob, [](const std::string&) {});
  ASSERT_TRUE(test::eventually([&] { return server->counts().calls >= calls + 2; }));
  EXPECT_FALSE(server->peek(keys::kMoved).has_value());
}

TEST(Redirect, LeavesOtherJobsAlone) {
  const auto server =
      StoreServer::start(kAny, {.secret = transport::Secret::from_text("open sesame"), .job = "other"}).or_throw();
  // A store that is left alone shows how often the redirect looks.
  const auto ours = StoreServer::start(kAny, kJob).or_throw();
  ours->local()->set(keys::kFormer, to_string(kHere)).or_throw();
  const Redirect redirect({server->address(), ours->address()}, kHere, kJob, [](const std::string&) {});
  ASSERT_TRUE(test::eventually([&] { return ours->counts().let_in >= 3; }));
  EXPECT_GE(server->counts().turned_away, 1u);
  EXPECT_LE(server->counts().turned_away, 2u) << "and is not asked again and again";
  EXPECT_FALSE(server->peek(keys::kMoved).has_value());
}

}  // namespace
}  // namespace tutti::launch::membership
