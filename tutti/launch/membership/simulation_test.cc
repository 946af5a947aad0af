// A job with many nodes in one process, with a clock of its own: nodes that die, are cut off, come late, have faults.
// It drives the interface (rendezvous.h) of an implementation in memory, whose rules are those of the coordinator
// (membership.h). Whatever happens, a round has one list of participants, its size lies between MIN and MAX, no node
// works in an older round for long, and once the world heals the job continues.
#include <gmock/gmock.h>

#include <random>
#include <set>

#include "tests/harness/memory_rendezvous.h"
#include "tutti/launch/membership/membership.h"
#include "tutti/store/table.h"

namespace tutti::launch::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = MembershipTable::Time;

// An agent, and what the simulation knows of it.
struct SimulatedAgent {
  std::string id;
  std::unique_ptr<Rendezvous> rendezvous;
  int round = -1;  // in which its workers run; -1: it waits, or is dead
  bool alive = true, cut = false, refused = false;
  Time heard{};  // the last moment it was in touch with the coordinator
};

class World {
 public:
  World(Limits limits, int agents) : limits_(limits), job_(limits, "0", [this] { return now_; }) {
    job_.on_round = [this](const Participants& participants) { check_round(participants); };
    for (int i = 0; i < agents; ++i) agents_.push_back(new_agent(std::to_string(i)));
  }

  SimulatedAgent& agent(int i) { return agents_[std::size_t(i)]; }
  int newest() const { return newest_; }
  int working() const {
    int count = 0;
    for (const SimulatedAgent& a : agents_) count += a.alive && a.round == newest_;
    return count;
  }
  std::string waiting_text() const { return job_.waiting_text(); }

  // Asks once; the timeout of join() is none.
  void come(SimulatedAgent& a) {
    if (!a.alive || a.cut || a.refused || a.round >= 0) return;
    const auto round = a.rendezvous->join();
    if (round.ok()) {
      a.round = round->number;
      EXPECT_EQ(round->nodes.size(), round->layout.counts.size());
      EXPECT_EQ(round->nodes[std::size_t(round->node)].host, "host" + a.id) << "its own place";
    } else {
      a.refused = round.error().code != Code::kTimeout;
    }
  }
  void start_again(SimulatedAgent& a) {  // a new process of a dead node
    ghosts_.emplace_back(a.id, now_);
    a = new_agent(std::to_string(next_id_++));
    come(a);
  }
  void fault() {
    for (SimulatedAgent& a : agents_) {
      if (!a.alive || a.cut || a.round != newest_ || !job_.running()) continue;
      const RoundEnd end = a.rendezvous->report(Fault{.text = "crash of " + a.id});
      EXPECT_TRUE(end.mine);
      EXPECT_TRUE(end.again);
      for (SimulatedAgent& other : agents_) {
        if (&other == &a || !other.alive || other.cut || other.round != newest_) continue;
        const auto& heard = other.rendezvous->next_event();
        ASSERT_TRUE(heard.has_value());
        EXPECT_EQ(heard->fault, end.fault) << "one cause for all";
        EXPECT_FALSE(heard->mine);
        EXPECT_EQ(other.rendezvous->report(Fault{.text = "another"}).fault, end.fault) << "the first one wins";
      }
      return settle();
    }
  }

  void pass(Duration step) {
    now_ += step;
    for (SimulatedAgent& a : agents_) {
      const bool silent = now_ - a.heard >= limits_.lost_after;
      if (a.alive && !a.cut) a.heard = now_;
      look(a);
      if (!silent) continue;
      a.round = -1;  // its own side of the cut ends its workers
      if (!a.alive || a.cut) job_.lose(a.id, !a.alive && dead_for_sure);
    }
    std::erase_if(ghosts_, [&](const auto& ghost) {
      const bool missed = now_ - ghost.second >= limits_.lost_after;
      if (missed) job_.lose(ghost.first, dead_for_sure);
      return missed;
    });
    job_.tick();
    settle();
    check_agents();
  }
  bool dead_for_sure = false;  // the death of a process can be told from a cut

 private:
  SimulatedAgent new_agent(const std::string& id) {
    NodesOptions options{.nodes = limits_.max, .min_nodes = limits_.min, .node = -1, .host = "host" + id};
    options.timeout = Duration(0);
    options.judge = [](const std::vector<Fault>&, const Fault&) { return Verdict{.restart = true}; };
    return {.id = id, .rendezvous = job_.open(id, std::move(options)), .heard = now_};
  }
  // An agent in touch with the job learns what ended its round, and ends its workers.
  void look(SimulatedAgent& a) {
    if (a.alive && !a.cut && a.round >= 0 && a.rendezvous->next_event()) a.round = -1;
  }
  // Until all agents have learned what there is to learn at this moment. To ask twice does no harm.
  void settle() {
    for (int turn = 0; turn < 5; ++turn) {
      for (SimulatedAgent& a : agents_) look(a);
      for (SimulatedAgent& a : agents_) come(a);
    }
  }
  void check_round(const Participants& participants) {
    EXPECT_GT(participants.round, newest_) << "a number is used once";
    EXPECT_GE(int(participants.nodes.size()), limits_.min);
    EXPECT_LE(int(participants.nodes.size()), limits_.max);
    newest_ = participants.round;
    std::set<std::string> ids;
    for (const JoinRequest& node : participants.nodes) {
      EXPECT_TRUE(ids.insert(node.id).second) << "one place each";
      for (const SimulatedAgent& a : agents_) {
        if (a.id != node.id || !a.alive || a.cut) continue;
        EXPECT_EQ(a.round, -1) << "a node that is given a place has no workers any more";
      }
    }
  }
  void check_agents() {
    for (const SimulatedAgent& a : agents_) {
      if (!a.alive || a.round < 0 || a.round == newest_) continue;
      EXPECT_TRUE(a.cut && now_ - a.heard < limits_.lost_after) << "agent " << a.id << " works in an old round";
    }
  }

  Time now_{seconds(1000)};
  const Limits limits_;
  test::MemoryJob job_;
  std::vector<SimulatedAgent> agents_;
  std::vector<std::pair<std::string, Time>> ghosts_;  // dead, replaced, and not missed yet
  int newest_ = -1;
  int next_id_ = 1000000;
};

TEST(Simulation, WhateverHappensTheJobStaysOne) {
  int rounds = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](int count) { return int(random() % unsigned(count)); };
    const int agents = 2 + pick(8), max = 1 + pick(agents), min = 1 + pick(max);
    World world({.min = min, .max = max, .join = std::chrono::hours(10), .last_call = seconds(2)}, agents);
    world.dead_for_sure = seed % 2;
    for (int i = 0; i < agents; ++i) world.come(world.agent(i));
    for (int step = 0; step < 400; ++step) {
      SimulatedAgent& a = world.agent(pick(agents));
      switch (pick(30)) {
        case 0:
          if (a.id != "0" && !(world.dead_for_sure && a.cut)) a.alive = false, a.round = -1;
          break;
        case 1:
          if (a.id != "0") a.cut = true;
          break;
        case 2:
          a.cut = false;
          break;
        case 3:
          if (!a.alive) world.start_again(a);
          break;
        case 4:
          world.fault();
          break;
        default:
          break;
      }
      world.pass(milliseconds(200));
    }
    // The world heals.
    for (int i = 0; i < agents; ++i) world.agent(i).cut = false;
    for (int i = 0; i < agents; ++i)
      if (!world.agent(i).alive) world.start_again(world.agent(i));
    for (int step = 0; step < 100; ++step) world.pass(milliseconds(200));
    if (world.dead_for_sure) {
      EXPECT_EQ(world.working(), max) << "all are well again";
    } else {
      EXPECT_TRUE(world.working() == max || world.waiting_text().find("minority") != std::string::npos)
          << world.working() << " of " << max;
    }
    rounds += world.newest() + 1;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(rounds, 1000) << "the simulation has to get somewhere";
}

// Ten thousand agents, none with a thread: the membership and the table of one store. Notes go through the inbox; each
// agent reads its assignment and the participants. Then a tenth of them is lost, and the rest meets again.
TEST(Simulation, TenThousandAgentsJoinThroughOneTable) {
  constexpr int kAgents = 10000;
  const Limits limits{.min = kAgents / 2, .max = kAgents};
  store::Table table;
  Time now{seconds(1000)};
  MembershipTable membership(limits, "0", now);
  std::vector<store::Table::Answer> answers;
  std::vector<int> nodes(kAgents, -1), rounds(kAgents, -1);
  const auto come = [&](int i, int visit) {
    const JoinRequest request{.id = std::to_string(i),
                              .visit = visit,
                              .min = limits.min,
                              .max = limits.max,
                              .last_round = visit - 1,
                              .note = {.ranks = 8, .host = "host-" + std::to_string(i), .address = "10.1.2.3"}};
    table.submit(store::Table::Ticket(1'000'000 + i),
                 {.op = store::Op::kPush, .keys = {keys::inbox(0)}, .values = {encode(request)}}, answers);
    table.submit(store::Table::Ticket(2'000'000 + i),
                 {.op = store::Op::kGet, .keys = {keys::assignment(request.id, visit)}}, answers);
  };
  const auto coordinate = [&](int count) {
    for (int i = 0; i < count; ++i) {
      std::vector<store::Table::Answer> popped;
      table.submit(1, {.op = store::Op::kPop, .keys = {keys::inbox(0)}}, popped);
      ASSERT_EQ(popped.size(), 1u);
      auto request = parse_join_request(popped[0].reply.values[0]);
      ASSERT_TRUE(request);
      membership.request_join(*std::move(request), now);
    }
    for (const MembershipStep& step : membership.take()) {
      if (step.kind != MembershipStep::Kind::kComplete) continue;
      std::vector<store::Table::Answer> done;
      table.submit(1,
                   {.op = store::Op::kSet,
                    .keys = {keys::participants(step.participants.round)},
                    .values = {encode(step.participants)}},
                   done);
      for (std::size_t node = 0; node < step.participants.nodes.size(); ++node) {
        const JoinRequest& request = step.participants.nodes[node];
        table.submit(2,
                     {.op = store::Op::kSet,
                      .keys = {keys::assignment(request.id, request.visit)},
                      .values = {encode(Assignment{.round = step.participants.round, .node = int(node)})}},
                     answers);
      }
    }
  };
  const auto read_assignments = [&] {
    for (const store::Table::Answer& answer : answers) {
      for (const store::Table::Ticket ticket : answer.tickets) {
        if (ticket < 2'000'000) continue;
        const auto assignment = parse_assignment(answer.reply.values.at(0));
        ASSERT_TRUE(assignment);
        const std::size_t agent = std::size_t(ticket - 2'000'000);
        nodes[agent] = assignment->node, rounds[agent] = assignment->round;
        std::vector<store::Table::Answer> read;
        table.submit(3, {.op = store::Op::kGet, .keys = {keys::participants(assignment->round)}}, read);
        ASSERT_EQ(read.size(), 1u);
      }
    }
    answers.clear();
  };

  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kAgents; ++i) come(i, 0);
  coordinate(kAgents);
  read_assignments();
  for (int i = 0; i < kAgents; ++i) ASSERT_EQ(nodes[std::size_t(i)], i);
  const double first = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  for (int i = 0; i < kAgents; i += 10) membership.lose(std::to_string(i == 0 ? 1 : i), "silence", false, now);
  EXPECT_FALSE(membership.running());
  for (int i = 0; i < kAgents; ++i)
    if (i == 0 || (i != 1 && i % 10 != 0)) come(i, 1);
  coordinate(kAgents * 9 / 10);
  read_assignments();
  EXPECT_EQ(std::count(rounds.begin(), rounds.end(), 1), kAgents * 9 / 10);
  const double both = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("10000 agents met in %.2f s, 9000 of them again after %.2f s\n", first, both);
}

}  // namespace
}  // namespace tutti::launch::membership
