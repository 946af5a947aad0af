// A store, its successor and the voices of agents, in one process; what is lost is lost by silence of the wire.
#include "tutti/launch/rounds/succession.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "tutti/launch/rounds/keys.h"
#include "tutti/launch/rounds/words.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Address kAny{.host = "127.0.0.1"};
const Credentials kJob{.secret = Secret::from_text("open sesame, said the store"), .job = "job"};
constexpr PulseTimes kFast{.period = milliseconds(20), .lost_after = milliseconds(400)};

template <class Condition>
bool soon(Condition condition) {
  const Deadline patience = Deadline::after(seconds(60));
  while (!condition() && !patience.expired()) usleep(2000);
  return condition();
}

// Between the two stores; while it is cut nothing gets through, and nobody is told.
class Wire {
 public:
  explicit Wire(Address to) : to_(std::move(to)), thread_([this] { serve(); }) {}
  ~Wire() {
    end_ = true;
    thread_.join();
  }
  const Address& address() const { return listener_.address; }
  void cut() { cut_ = true; }

 private:
  void serve() {
    while (!end_) {
      if (!wait_readable(listener_.fd.get(), Deadline::after_seconds(0.02)).or_throw()) continue;
      const Fd one = accept(listener_).or_throw();
      if (!one) continue;
      const Fd other = connect(to_, Deadline::after(seconds(10))).or_throw();
      char bytes[4096];
      for (bool open = true; open && !end_; usleep(500)) {
        for (const auto& [from, to] : {std::pair(one.get(), other.get()), std::pair(other.get(), one.get())}) {
          const ssize_t got = cut_ ? -1 : recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
          open = open && got != 0;
          if (got > 0)
            (void)send_all(to, std::as_bytes(std::span(bytes, std::size_t(got))), Deadline::after(seconds(10)));
        }
      }
    }
  }

  const Address to_;
  Listener listener_ = listen(kAny).or_throw();
  std::atomic<bool> end_{false}, cut_{false};
  std::thread thread_;
};

// Agent 1 serves, agent 2 keeps the copy, the others only have a voice.
class Succession : public testing::Test {
 protected:
  Succession() {
    Roster roster{.round = 0, .nodes = {}, .past = {}, .successor = id_of(2)};
    for (std::uint64_t number = 1; number <= 3; ++number) roster.nodes.push_back({.id = id_of(number)});
    begin(std::move(roster));
  }
  void begin(Roster roster) {
    Electorate electorate{.round = roster.round, .members = {}};
    for (const Comer& comer : roster.nodes) electorate.members.push_back(number_of(comer.id));
    primary_->local()->set(keys::kRoster, encode(roster)).or_throw();
    incumbent_.set_electorate(std::move(electorate));
  }
  void follow() {
    successor_ = Successor::follow({.self = 2,
                                    .host = "127.0.0.1",
                                    .primary = wire_.address(),
                                    .credentials = kJob,
                                    .times = kFast,
                                    .ballot = ballots_[2],
                                    .say = [](const std::string&) {}},
                                   Deadline::after(seconds(60)))
                     .or_throw();
  }
  std::unique_ptr<Pulse> pulse(std::uint64_t agent, const std::string& center, std::uint64_t candidate) {
    return Pulse::open(center, agent, kJob, kFast,
                       [ballot = ballots_[agent], candidate](int round) { return ballot->give(round, candidate); })
        .or_throw();
  }
  bool primary_goes_on() const {
    auto store = primary_->local();
    store->set_call_timeout(milliseconds(100));
    return store->set("k", "v").ok();
  }
  bool successor_serves() const { return successor_->standing() == Standing::kPrimary; }

  const std::shared_ptr<Ballot> ballots_[4] = {nullptr, std::make_shared<Ballot>(), std::make_shared<Ballot>(),
                                               std::make_shared<Ballot>()};
  std::unique_ptr<StoreServer> primary_ = StoreServer::start(kAny, kJob).or_throw();
  std::unique_ptr<PulseCenter> center_ = PulseCenter::open("127.0.0.1", 0, kJob, kFast).or_throw();
  Incumbent incumbent_{*primary_, *center_, *ballots_[1], 1, [](const std::string&) {}};
  Wire wire_{primary_->address()};
  std::unique_ptr<Successor> successor_;
};

TEST_F(Succession, TheMajorityLetsTheSuccessorServe) {
  follow();
  wire_.cut();
  const auto third = pulse(3, successor_->box(), 2);
  successor_->primary_is_lost(false);
  EXPECT_TRUE(soon([&] { return successor_serves(); }));
  EXPECT_TRUE(soon([&] { return incumbent_.is_cut_off(); }));
  const auto late = pulse(3, center_->address(), 1);  // it has no voice left
  usleep(300'000);
  EXPECT_FALSE(primary_goes_on());
  EXPECT_TRUE(primary_->in_doubt());
}

TEST_F(Succession, HalfOfTheNodesLetThePrimaryGoOn) {
  follow();
  const auto third = pulse(3, center_->address(), 1);
  EXPECT_TRUE(soon([&] { return third->ever_heard(); }));
  wire_.cut();
  successor_->primary_is_lost(false);
  EXPECT_TRUE(
      soon([&] { return primary_->standing() == Standing::kPrimary && !primary_->in_doubt() && primary_goes_on(); }));
  const auto late = pulse(3, successor_->box(), 2);
  usleep(300'000);
  EXPECT_FALSE(successor_serves());
  EXPECT_FALSE(incumbent_.is_cut_off());
}

TEST_F(Succession, AloneNeitherGoesOn) {
  follow();
  const auto third = Pulse::open(center_->address(), 3, kJob, kFast).or_throw();  // is heard, and says nothing
  third->set_round(0);
  center_->expect(3);
  center_->set_round(0);
  wire_.cut();
  successor_->primary_is_lost(true);
  EXPECT_TRUE(soon([&] { return incumbent_.is_cut_off(); }));
  EXPECT_TRUE(soon([&] { return third->state() == Pulse::State::kOut; })) << "nobody may count on this side";
  EXPECT_FALSE(primary_goes_on());
  EXPECT_FALSE(successor_serves());
}

TEST_F(Succession, OfTwoNodesTheSuccessorNeedsTheEndOfTheFirst) {
  begin({.round = 1, .nodes = {{.id = id_of(1)}, {.id = id_of(2)}}, .past = {}, .successor = id_of(2)});
  follow();
  wire_.cut();
  EXPECT_TRUE(soon([&] { return primary_goes_on(); })) << "the tie is the primary's";
  successor_->primary_is_lost(true);
  usleep(300'000);
  EXPECT_FALSE(successor_serves()) << "somebody listens there";
}

TEST_F(Succession, WithoutDoubtNothingIsDecided) {
  follow();
  const auto third = pulse(3, successor_->box(), 2);
  successor_->primary_is_lost(false);
  usleep(500'000);
  EXPECT_FALSE(successor_serves());
  EXPECT_TRUE(primary_goes_on());
}

TEST_F(Succession, ABallotBoxIsNoCoordinator) {
  follow();
  const auto agent = pulse(3, successor_->box(), 2);
  EXPECT_TRUE(soon([&] { return agent->state() == Pulse::State::kSilent; }));
  EXPECT_FALSE(agent->ever_heard());
}

TEST_F(Succession, WhatIsReleasedServesOn) {
  follow();
  wire_.cut();
  const auto third = pulse(3, successor_->box(), 2);
  successor_->primary_is_lost(false);
  EXPECT_TRUE(soon([&] { return successor_serves(); }));
  const auto server = successor_->release();
  EXPECT_TRUE(parse_roster(server->local()->get(keys::kRoster, Deadline::after(seconds(10))).or_throw()).has_value());
}

}  // namespace
}  // namespace tutti
