// The book of the coordinator with many agents around it, in one process and with a clock of its own: agents that die,
// are cut off, come late, have faults. Whatever happens, a round has one roster, its size lies between MIN and MAX,
// nobody works in an older one for long, and once the world heals the job goes on.
#include <gmock/gmock.h>

#include <random>
#include <set>

#include "tutti/launch/membership/membership_table.h"
#include "tutti/store/table.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = MembershipTable::Time;

// What an agent does, as far as the others see it.
struct SimulatedAgent {
  std::string id;
  int visit = 0;
  int round = -1;  // in which its workers run; -1: it waits, or is dead
  int last_round = -1;
  bool alive = true, cut = false, refused = false;
  Time heard{};  // the last moment it was in touch with the coordinator
};

class World {
 public:
  World(Limits limits, int agents) : limits_(limits), book_(limits, "0", now_) {
    for (int i = 0; i < agents; ++i) agents_.push_back({.id = std::to_string(i), .heard = now_});
  }

  SimulatedAgent& agent(int i) { return agents_[std::size_t(i)]; }
  int size() const { return int(agents_.size()); }
  MembershipTable& book() { return book_; }
  int newest() const { return newest_; }
  int working() const {
    int count = 0;
    for (const SimulatedAgent& a : agents_) count += a.alive && a.round == newest_;
    return count;
  }

  void come(SimulatedAgent& a) {
    if (!a.alive || a.cut || a.refused || a.round >= 0) return;
    book_.come(comer(a), now_);
    carry_out();
  }
  void start_again(SimulatedAgent& a) {  // a new process of a dead node
    ghosts_.emplace_back(a.id, now_);
    a = {.id = std::to_string(next_id_++), .heard = now_};
    come(a);
  }
  void fault(bool goes_on) {
    if (!book_.running()) return;
    for (SimulatedAgent& a : agents_)
      if (!a.cut && a.round == newest_) stop(a);
    book_.end(newest_, Fault{.text = "crash"}, goes_on, now_);
    carry_out();
  }

  void pass(Duration step) {
    now_ += step;
    for (SimulatedAgent& a : agents_) {
      const bool silent = now_ - a.heard >= limits_.lost_after;
      if (a.alive && !a.cut) a.heard = now_;
      if (a.alive && !a.cut && a.round >= 0 && !(book_.running() && a.round == newest_))
        stop(a);  // reads what ended its round
      if (!silent) continue;
      if (a.round >= 0) stop(a);  // its own side of the cut
      if (book_.knows(a.id) && (!a.alive || a.cut)) book_.lose(a.id, "silence", !a.alive && dead_for_sure, now_);
    }
    std::erase_if(ghosts_, [&](const auto& ghost) {
      const bool missed = now_ - ghost.second >= limits_.lost_after;
      if (missed) book_.lose(ghost.first, "silence", dead_for_sure, now_);
      return missed;
    });
    carry_out();
    book_.tick(now_);
    carry_out();
    for (SimulatedAgent& a : agents_) come(a);  // again and again: what is said twice does no harm
    carry_out();
    judge();
  }
  bool dead_for_sure = false;  // the death of a process can be told from a cut

 private:
  JoinRequest comer(const SimulatedAgent& a) const {
    return {.id = a.id,
            .visit = a.visit,
            .min = limits_.min,
            .max = limits_.max,
            .last_round = a.last_round,
            .note = {.host = "host" + a.id}};
  }
  void stop(SimulatedAgent& a) {
    a.last_round = a.round;
    a.round = -1;
    ++a.visit;
  }
  SimulatedAgent* find(const std::string& id) {
    for (SimulatedAgent& a : agents_)
      if (a.id == id) return &a;
    return nullptr;
  }
  void carry_out() {
    for (bool more = true; more;) {
      more = false;
      for (MembershipStep& step : book_.take()) {
        more = true;
        if (step.kind == MembershipStep::Kind::kComplete) {
          EXPECT_GT(step.roster.round, newest_) << "a number is used once";
          EXPECT_GE(int(step.roster.nodes.size()), limits_.min);
          EXPECT_LE(int(step.roster.nodes.size()), limits_.max);
          newest_ = step.roster.round;
          std::set<std::string> ids;
          for (const JoinRequest& node : step.roster.nodes) {
            EXPECT_TRUE(ids.insert(node.id).second) << "one place each";
            SimulatedAgent* a = find(node.id);
            if (!a || !a->alive || a->cut) continue;
            EXPECT_EQ(a->round, -1) << "who is given a place has no workers any more";
            a->round = newest_;
          }
        } else if (step.kind == MembershipStep::Kind::kRefuse) {
          for (const JoinRequest& who : step.who)
            if (SimulatedAgent* a = find(who.id); a && a->alive) a->refused = true;
        } else if (step.kind == MembershipStep::Kind::kEndRound || step.kind == MembershipStep::Kind::kFail) {
          for (SimulatedAgent& a : agents_)
            if (a.alive && !a.cut && a.round == step.round) stop(a);
        }
      }
      for (SimulatedAgent& a : agents_)
        if (more && a.alive && !a.cut && a.round < 0 && !a.refused && a.last_round >= 0) book_.come(comer(a), now_);
    }
  }
  void judge() {
    for (const SimulatedAgent& a : agents_) {
      if (a.alive && a.round >= 0 && a.round < newest_) {
        EXPECT_TRUE(a.cut && now_ - a.heard < limits_.lost_after) << "agent " << a.id << " works in an old round";
      }
    }
  }

  Time now_{seconds(1000)};
  Limits limits_;
  MembershipTable book_;
  std::vector<SimulatedAgent> agents_;
  std::vector<std::pair<std::string, Time>> ghosts_;  // dead, replaced, and not missed yet
  int newest_ = -1;
  int next_id_ = 1000000;
};

TEST(RoundsSimulation, WhateverHappensTheJobStaysOne) {
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
          world.fault(true);
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
      EXPECT_EQ(world.working(), max) << "everybody is well again";
    } else {
      EXPECT_TRUE(world.working() == max || world.book().waiting_words({}).find("minority") != std::string::npos)
          << world.working() << " of " << max;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

// Ten thousand agents over one store's table: notes through the inbox, a seat for each, the roster for all; a tenth of
// them lost, and the rest in the next round.
TEST(RoundsSimulation, TenThousandAgentsMeetInOneTable) {
  constexpr int kAgents = 10000;
  const Limits limits{.min = kAgents / 2, .max = kAgents};
  Table table;
  Time now{seconds(1000)};
  MembershipTable book(limits, "0", now);
  std::vector<Table::Answer> answers;
  std::vector<int> seats(kAgents, -1), rounds(kAgents, -1);
  const auto seat_key = [](const std::string& id, int visit) {
    return "agents/seat/" + id + "/" + std::to_string(visit);
  };
  const auto come = [&](int i, int visit) {
    const JoinRequest comer{.id = std::to_string(i),
                            .visit = visit,
                            .min = limits.min,
                            .max = limits.max,
                            .last_round = visit - 1,
                            .note = {.ranks = 8, .host = "host-" + std::to_string(i), .address = "10.1.2.3"}};
    table.submit(Table::Ticket(1'000'000 + i), {.op = Op::kPush, .keys = {"agents/inbox"}, .values = {encode(comer)}},
                 answers);
    table.submit(Table::Ticket(2'000'000 + i), {.op = Op::kGet, .keys = {seat_key(comer.id, visit)}}, answers);
  };
  const auto coordinate = [&](int count) {
    for (int i = 0; i < count; ++i) {
      std::vector<Table::Answer> popped;
      table.submit(1, {.op = Op::kPop, .keys = {"agents/inbox"}}, popped);
      ASSERT_EQ(popped.size(), 1u);
      auto comer = parse_comer(popped[0].reply.values[0]);
      ASSERT_TRUE(comer);
      book.come(*std::move(comer), now);
    }
    for (const MembershipStep& step : book.take()) {
      if (step.kind != MembershipStep::Kind::kComplete) continue;
      std::vector<Table::Answer> done;
      table.submit(1,
                   {.op = Op::kSet,
                    .keys = {"agents/roster/" + std::to_string(step.roster.round)},
                    .values = {encode(step.roster)}},
                   done);
      for (std::size_t node = 0; node < step.roster.nodes.size(); ++node) {
        const JoinRequest& comer = step.roster.nodes[node];
        table.submit(2,
                     {.op = Op::kSet,
                      .keys = {seat_key(comer.id, comer.visit)},
                      .values = {encode(Assignment{.round = step.roster.round, .node = int(node)})}},
                     answers);
      }
    }
  };
  const auto read_seats = [&] {
    for (const Table::Answer& answer : answers) {
      for (const Table::Ticket ticket : answer.tickets) {
        if (ticket < 2'000'000) continue;
        const auto seat = parse_seat(answer.reply.values.at(0));
        ASSERT_TRUE(seat);
        const std::size_t agent = std::size_t(ticket - 2'000'000);
        seats[agent] = seat->node, rounds[agent] = seat->round;
        std::vector<Table::Answer> read;
        table.submit(3, {.op = Op::kGet, .keys = {"agents/roster/" + std::to_string(seat->round)}}, read);
        ASSERT_EQ(read.size(), 1u);
      }
    }
    answers.clear();
  };

  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kAgents; ++i) come(i, 0);
  coordinate(kAgents);
  read_seats();
  for (int i = 0; i < kAgents; ++i) ASSERT_EQ(seats[std::size_t(i)], i);
  const double first = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  for (int i = 0; i < kAgents; i += 10) book.lose(std::to_string(i == 0 ? 1 : i), "silence", false, now);
  EXPECT_FALSE(book.running());
  for (int i = 0; i < kAgents; ++i)
    if (i == 0 || (i != 1 && i % 10 != 0)) come(i, 1);
  coordinate(kAgents * 9 / 10);
  read_seats();
  EXPECT_EQ(std::count(rounds.begin(), rounds.end(), 1), kAgents * 9 / 10);
  const double both = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("10000 agents met in %.2f s, 9000 of them again after %.2f s\n", first, both);
}

}  // namespace
}  // namespace tutti
