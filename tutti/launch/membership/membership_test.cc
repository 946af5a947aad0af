#include "tutti/launch/membership/membership.h"

#include <gmock/gmock.h>

#include "tutti/base/text.h"

namespace tutti::launch::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A membership table with a clock of its own, and what came out of it.
class TestedTable {
 public:
  explicit TestedTable(Limits limits) : limits_(limits), table_(limits, "a", now_) {}

  JoinRequest request_of(const std::string& id, int wanted = -1) const {
    return {.id = id,
            .wanted = wanted,
            .min = limits_.min,
            .max = limits_.max,
            .failover = limits_.failover,
            .note = {.host = "host-" + id, .address = "10.0.0." + std::to_string(int(id[0] - 'a' + 1))}};
  }
  // Each time with the next visit, as an agent does that has left its round.
  void come(const std::string& id, int wanted = -1) {
    JoinRequest next = request_of(id, wanted);
    next.visit = ++visits_[id];
    come(std::move(next));
  }
  void come(JoinRequest request) { table_.request_join(std::move(request), now_), collect(); }
  void lose(const std::string& id) { table_.lose(id, "is lost: nothing was heard of it", false, now_), collect(); }
  void is_dead(const std::string& id) { table_.lose(id, "is lost", true, now_), collect(); }
  void leave(const std::string& id) { table_.leave(id, now_), collect(); }
  void fault(bool goes_on) {
    table_.end(table_.participants().round, Fault{.text = "crash"}, goes_on, now_), collect();
  }
  void is_alive(const std::string& id, MembershipTable::Time when) { table_.is_alive(id, when), collect(); }
  MembershipTable::Time time() const { return now_; }
  void pass(Duration time) {
    for (const auto end = now_ + time; now_ < end; now_ += std::chrono::milliseconds(100)) table_.tick(now_);
    collect();
  }

  // The ids of the round that has come together since the last look, by node; empty: none.
  std::string round() {
    std::string ids;
    for (const MembershipStep& step : steps_)
      if (step.kind == MembershipStep::Kind::kComplete) {
        ids.clear();
        for (const JoinRequest& node : step.participants.nodes) ids += node.id;
      }
    std::erase_if(steps_, [](const MembershipStep& step) { return step.kind == MembershipStep::Kind::kComplete; });
    return ids;
  }
  // The steps of this kind since the last look.
  std::string told(MembershipStep::Kind kind) {
    std::string text;
    for (const MembershipStep& step : steps_) {
      if (step.kind != kind) continue;
      for (const JoinRequest& who : step.who) text += who.id + ": ";
      text += kind == MembershipStep::Kind::kRefuse ? to_string(step.error) + "\n" : step.text + "\n";
    }
    std::erase_if(steps_, [&](const MembershipStep& step) { return step.kind == kind; });
    return text;
  }
  MembershipTable& table() { return table_; }
  std::string waiting() const { return table_.waiting_text(now_); }

 private:
  void collect() {
    for (MembershipStep& step : table_.take()) steps_.push_back(std::move(step));
  }

  MembershipTable::Time now_{seconds(1000)};
  std::map<std::string, int> visits_;
  Limits limits_;
  MembershipTable table_;
  std::vector<MembershipStep> steps_;
};

using enum MembershipStep::Kind;

TEST(MembershipTable, IsCompleteAtOnceWithAllThatMayTakePart) {
  TestedTable table({.min = 2, .max = 3});
  table.come("a"), table.come("b");
  EXPECT_EQ(table.round(), "");
  table.come("c");
  EXPECT_EQ(table.round(), "abc");
  EXPECT_EQ(table.table().participants().round, 0);
}

TEST(MembershipTable, TheLastCallEndsTheWaitForMore) {
  TestedTable table({.min = 2, .max = 3, .last_call = seconds(30)});
  table.come("b");
  table.pass(seconds(60));
  EXPECT_EQ(table.round(), "") << "one is too few";
  table.come("a");
  table.pass(seconds(29));
  EXPECT_EQ(table.round(), "");
  EXPECT_THAT(table.waiting(), HasSubstr("the last call for more lasts 1 s"));
  table.pass(seconds(2));
  EXPECT_EQ(table.round(), "ba") << "as they came";
}

// The last call may be longer than what is left of the time to join.
TEST(MembershipTable, MinNodesBeginWhenTheTimeToJoinIsOver) {
  TestedTable table({.min = 2, .max = 3, .join = seconds(6), .last_call = seconds(5)});
  table.come("a");
  table.pass(seconds(3));
  table.come("b");
  table.pass(milliseconds(2900));
  EXPECT_EQ(table.round(), "");
  table.pass(milliseconds(300));
  EXPECT_EQ(table.round(), "ab");
  EXPECT_EQ(table.told(MembershipStep::Kind::kRefuse), "");
}

TEST(MembershipTable, NumbersDecideTheOrder) {
  TestedTable table({.min = 3, .max = 3, .numbered = true});
  table.come("a", 2), table.come("b", 0), table.come("c", 1);
  EXPECT_EQ(table.round(), "bca");
}

TEST(MembershipTable, MissingNodesAreNamed) {
  TestedTable table({.min = 3, .max = 3, .numbered = true, .join = seconds(300)});
  table.come("b", 1);
  table.pass(seconds(12));
  EXPECT_EQ(table.waiting(),
            "1 of 3 nodes joined after 12 s of 5 min: node 1 (host-b at 10.0.0.2); missing: nodes 0, 2");
  table.pass(seconds(290));
  EXPECT_THAT(table.told(kRefuse), AllOf(HasSubstr("b: Timeout: 1 of 3 nodes joined after 5 min"),
                                         HasSubstr("missing: nodes 0, 2"), HasSubstr("are the missing nodes started")));
}

TEST(MembershipTable, TheRestContinuesWithoutALostNode) {
  TestedTable table({.min = 1, .max = 3});
  table.come("a"), table.come("b"), table.come("c");
  ASSERT_EQ(table.round(), "abc");
  table.lose("b");
  EXPECT_EQ(table.told(kEndRound), "node 1 (host-b) is lost: nothing was heard of it\n");
  table.come("c");
  EXPECT_EQ(table.round(), "") << "a has not come yet";
  table.come("a");
  EXPECT_EQ(table.round(), "ac") << "without a last call: nobody else is known";
  EXPECT_EQ(table.table().participants().round, 1);
}

TEST(MembershipTable, AReplacementOfALostNodeIsAdmitted) {
  TestedTable table({.min = 1, .max = 2, .last_call = seconds(3)});
  table.come("a"), table.come("b");
  ASSERT_EQ(table.round(), "ab");
  table.lose("b"), table.come("a");
  ASSERT_EQ(table.round(), "a");
  EXPECT_THAT(table.told(kEndRound), HasSubstr("node 1 (host-b) is lost"));
  table.come("d");  // another process of the same host
  EXPECT_THAT(table.told(kSay), HasSubstr("host-d at 10.0.0.4 joined: a new round begins with it in 3 s"));
  EXPECT_EQ(table.told(kEndRound), "");
  table.pass(seconds(4));
  EXPECT_EQ(table.told(kEndRound), "host-d at 10.0.0.4 joined\n");
  table.come("a");
  EXPECT_EQ(table.round(), "ad");
}

TEST(MembershipTable, ASpareStepsInForALostNodeOnly) {
  TestedTable table({.min = 2, .max = 2});
  table.come("a"), table.come("b");
  ASSERT_EQ(table.round(), "ab");
  table.come("c");
  EXPECT_EQ(table.told(kSay), "host-c at 10.0.0.3 joined and waits as a spare: 2 nodes take part, --nnodes allows 2\n");
  table.pass(seconds(100));
  EXPECT_EQ(table.told(kEndRound), "");
  table.fault(true), table.come("b");
  EXPECT_EQ(table.round(), "") << "a is on its way";
  table.come("a");
  EXPECT_EQ(table.round(), "ab");
  table.lose("a");
  table.come("b");
  EXPECT_EQ(table.round(), "bc");
}

// An arbiter tells which of the silent nodes lives: b does, behind a cut.
TEST(MembershipTable, AFewNodesContinueOnceTheOthersAreKnownToBeDead) {
  TestedTable table({.min = 1, .max = 5});
  for (const char* id : {"a", "b", "c", "d", "e"}) table.come(id);
  ASSERT_EQ(table.round(), "abcde");
  for (const char* id : {"b", "c", "d", "e"}) table.lose(id);
  table.come("a");
  EXPECT_EQ(table.round(), "");
  EXPECT_TRUE(table.table().in_minority());
  for (const char* id : {"c", "d"}) table.is_dead(id);
  EXPECT_EQ(table.round(), "");
  table.is_dead("e");
  EXPECT_EQ(table.round(), "a");
  EXPECT_FALSE(table.table().in_minority());
}

TEST(MembershipTable, AMinorityNeverContinues) {
  TestedTable table({.min = 1, .max = 5, .join = seconds(60)});
  for (const char* id : {"a", "b", "c", "d", "e"}) table.come(id);
  ASSERT_EQ(table.round(), "abcde");
  table.lose("c"), table.lose("d"), table.lose("e");
  table.come("a"), table.come("b");
  table.pass(seconds(50));
  EXPECT_EQ(table.round(), "");
  EXPECT_THAT(table.waiting(), AllOf(HasSubstr("fewer than half of the last round, and a minority never continues"),
                                     HasSubstr("missing: node 2 (host-c at 10.0.0.3), lost, node 3")));
  table.come("d");  // the cut has healed
  EXPECT_EQ(table.round(), "abd");
}

TEST(MembershipTable, TheDeadAreNoMajority) {
  TestedTable table({.min = 1, .max = 5});
  for (const char* id : {"a", "b", "c", "d", "e"}) table.come(id);
  ASSERT_EQ(table.round(), "abcde");
  table.leave("c"), table.leave("d"), table.leave("e");
  EXPECT_THAT(table.told(kEndRound), HasSubstr("node 2 (host-c) has left"));
  table.come("a"), table.come("b");
  EXPECT_EQ(table.round(), "ab");
}

TEST(MembershipTable, TooFewAreNamedAndEndTheJob) {
  TestedTable table({.min = 2, .max = 3, .join = seconds(60)});
  table.come("a"), table.come("b"), table.come("c");
  ASSERT_EQ(table.round(), "abc");
  table.leave("b"), table.leave("c");
  table.come("a");
  table.pass(seconds(61));
  EXPECT_THAT(table.told(kRefuse), HasSubstr("a: Timeout: 1 of at least 2 nodes joined after 60 s of 60 s"));
  EXPECT_TRUE(table.table().over());
}

TEST(MembershipTable, AJobOfFixedSizeEndsWithItsFirstLostNode) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  table.come("a", 0), table.come("b", 1);
  ASSERT_EQ(table.round(), "ab");
  table.lose("b");
  EXPECT_EQ(table.told(kFail), "node 1 (host-b) is lost: nothing was heard of it\n");
  table.fault(false);
  EXPECT_TRUE(table.table().over());
}

TEST(MembershipTable, AJobOfFixedSizeWithRestartsWaitsForAReplacement) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  table.come("a", 0), table.come("b", 1);
  ASSERT_EQ(table.round(), "ab");
  table.lose("b"), table.fault(true), table.come("a", 0);
  table.pass(seconds(40));
  EXPECT_THAT(table.waiting(), HasSubstr("missing: node 1 (host-b at 10.0.0.2), lost"));
  table.come("c", 1);
  EXPECT_EQ(table.round(), "ac");
  EXPECT_EQ(table.table().participants().past.size(), 1u);
}

TEST(MembershipTable, AllNodesLearnOfAContradiction) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  JoinRequest first = table.request_of("a", 0), second = table.request_of("b", 1);
  first.note.listed = {1, 1}, second.note.listed = {1, 3};
  table.come(first), table.come(second);
  EXPECT_EQ(table.round(), "");
  EXPECT_THAT(table.told(kRefuse), HasSubstr("Mismatch: node 0 was given -n 1,1, but node 1 -n 1,3"));
}

TEST(MembershipTable, ASecondNodeWithTheSameNumberIsRejected) {
  TestedTable table({.min = 2, .max = 2, .numbered = true, .lost_after = seconds(2)});
  JoinRequest first = table.request_of("a", 0), second = table.request_of("c", 0);
  first.note.pid = 71, second.note.pid = 72;
  table.come(first), table.come(second);
  EXPECT_EQ(table.told(kRefuse), "") << "the first may be dead, which nobody knows yet";
  table.pass(seconds(4));
  EXPECT_THAT(table.told(kRefuse),
              AllOf(HasSubstr("c: Mismatch: node 0 (host-a at 10.0.0.1, pid 71) already takes part (hint: every node "
                              "needs its own --node-rank"),
                    HasSubstr("a: Mismatch: node 0 (host-c at 10.0.0.3, pid 72) was rejected: node 0 (host-a at "
                              "10.0.0.1, pid 71) already takes part")));
}

TEST(MembershipTable, ADuplicateOfALivingNodeIsRefusedAtOnce) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  table.come("a", 0), table.come("b", 1);
  ASSERT_EQ(table.round(), "ab");
  EXPECT_THAT(table.table().suspected(), IsEmpty());
  const auto before = table.time();
  table.pass(milliseconds(100));
  table.come("c", 1);
  EXPECT_THAT(table.table().suspected(), ElementsAre("b"));
  table.is_alive("b", before);
  EXPECT_EQ(table.told(kRefuse), "") << "that was before its duplicate came";
  table.pass(milliseconds(200));
  table.is_alive("a", table.time());
  EXPECT_EQ(table.told(kRefuse), "");
  table.is_alive("b", table.time());
  EXPECT_THAT(table.told(kRefuse), HasSubstr("c: Mismatch: node 1 (host-b at 10.0.0.2) already takes part"));
  EXPECT_THAT(table.told(kSay), HasSubstr("node 1 (host-c at 10.0.0.3) was rejected: node 1 (host-b"));
  EXPECT_THAT(table.table().suspected(), IsEmpty());
  EXPECT_TRUE(table.table().running());
}

TEST(MembershipTable, ADuplicateIsNoSpareWhenTheJobEnds) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  table.come("a", 0), table.come("b", 1), table.come("c", 1);
  table.fault(false);
  EXPECT_THAT(table.told(kRefuse), AllOf(HasSubstr("c: Mismatch: node 1 (host-b at 10.0.0.2) already takes part"),
                                         Not(HasSubstr("the job has ended"))));
}

TEST(MembershipTable, AReplacementThatCameTooLateLearnsThatTheJobEnded) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  table.come("a", 0), table.come("b", 1), table.come("c", 1);
  table.lose("b"), table.fault(false);
  EXPECT_EQ(table.told(kRefuse), "c: Aborted: the job has ended\n");
}

TEST(MembershipTable, AReplacementTakesTheNumberOfTheDeadNode) {
  TestedTable table({.min = 2, .max = 2, .numbered = true, .lost_after = seconds(2)});
  table.come("a", 0), table.come("c", 0);
  table.pass(seconds(1));
  table.lose("a");
  table.come("b", 1);
  table.pass(seconds(1));
  EXPECT_EQ(table.round(), "cb");
}

TEST(MembershipTable, AllNodesLearnOfDifferentNnodes) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  table.come("a", 0);
  JoinRequest other = table.request_of("b", 1);
  other.min = other.max = 3;
  table.come(other);
  EXPECT_THAT(table.told(kRefuse),
              AllOf(HasSubstr("b: Mismatch: node 1 (host-b at 10.0.0.2) counts 3 nodes (--nnodes), but the coordinator "
                              "expects 2 (hint: give all nodes the "
                              "same --nnodes)"),
                    Not(HasSubstr("--node-rank")), HasSubstr("a: Mismatch: node 1 (host-b at 10.0.0.2) was rejected")));
}

TEST(MembershipTable, AllNodesLearnThatOneHasTheFailoverSwitchedOff) {
  TestedTable table({.min = 1, .max = 2, .failover = true});
  table.come("a", 0);
  JoinRequest other = table.request_of("b", 1);
  other.failover = false;
  table.come(other);
  EXPECT_THAT(table.told(kRefuse), AllOf(HasSubstr("b: Mismatch: node 1 (host-b at 10.0.0.2) has the failover of the "
                                                   "store off, but on the coordinator it is on"),
                                         HasSubstr("same failover= in --rdzv-conf")));
}

TEST(MembershipTable, ANodeThatComesAfterAContradictionLearnsOfIt) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  JoinRequest other = table.request_of("b", 1);
  other.min = other.max = 3;
  table.come(other);
  table.come("a", 0);
  EXPECT_THAT(table.told(kRefuse), HasSubstr("a: Mismatch: node 1 (host-b at 10.0.0.2) was rejected"));
}

TEST(MembershipTable, AllNodesLearnOfDifferentReleases) {
  TestedTable table({.min = 2, .max = 2});
  table.come("a");
  JoinRequest other = table.request_of("b");
  other.note.release = "0.0.9";
  table.come(other);
  EXPECT_THAT(
      table.told(kRefuse),
      AllOf(
          HasSubstr("b: Mismatch: host-b at 10.0.0.2 runs tutti 0.0.9, but the coordinator runs tutti " TUTTI_VERSION),
          HasSubstr("install the same release on all nodes"), HasSubstr("a: Mismatch: ")));
  TestedTable running({.min = 1, .max = 2});
  running.come("a");
  running.pass(seconds(60));
  EXPECT_EQ(running.round(), "a");
  other.note.release.clear();
  running.come(other);
  EXPECT_THAT(running.told(kRefuse),
              AllOf(HasSubstr("b: Mismatch: host-b at 10.0.0.2 runs an older tutti, but "), Not(HasSubstr("a: "))));
}

TEST(MembershipTable, ALatecomerThatDoesNotFitEndsNothing) {
  TestedTable table({.min = 2, .max = 2, .numbered = true});
  table.come("a", 0), table.come("b", 1);
  ASSERT_EQ(table.round(), "ab");
  table.come("c", 7);
  EXPECT_THAT(table.told(kRefuse), HasSubstr("c: Mismatch: node 7 (host-c at 10.0.0.3) is not one of 2 nodes"));
  EXPECT_TRUE(table.table().running());
}

TEST(MembershipTable, ANodeThatComesBackHasLeftItsRound) {
  TestedTable table({.min = 1, .max = 2});
  table.come("a"), table.come("b");
  ASSERT_EQ(table.round(), "ab");
  table.come("b");
  EXPECT_THAT(table.told(kEndRound), HasSubstr("node 1 (host-b at 10.0.0.2) has left the round"));
  table.come("a");
  EXPECT_EQ(table.round(), "ab");
}

TEST(MembershipTable, ARepeatedRequestEndsNothing) {
  TestedTable table({.min = 2, .max = 2});
  const JoinRequest b = table.request_of("b");
  table.come("a"), table.come(b);
  ASSERT_EQ(table.round(), "ab");
  table.come(b);
  EXPECT_TRUE(table.table().running());
}

TEST(MembershipTable, FaultsAreRemembered) {
  TestedTable table({.min = 1, .max = 2});
  table.come("a"), table.come("b");
  table.fault(true), table.come("a"), table.come("b");
  table.lose("b"), table.come("a");
  ASSERT_EQ(table.table().participants().past.size(), 1u) << "a lost node is no fault";
  EXPECT_EQ(table.table().participants().past[0].text, "crash");
}

TEST(MembershipTable, TheEndRefusesSpares) {
  TestedTable table({.min = 1, .max = 1});
  table.come("a"), table.come("b");
  table.fault(false);
  EXPECT_EQ(table.told(kRefuse), "b: Aborted: the job has ended\n");
  table.come("c");
  EXPECT_EQ(table.told(kRefuse), "c: Aborted: the job has ended\n");
  EXPECT_EQ(table.table().others(), 0u);
}

TEST(MembershipTable, AnotherCoordinatorContinues) {
  TestedTable table({.min = 1, .max = 3});
  Participants last{.round = 4,
                    .nodes = {table.request_of("z"), table.request_of("a"), table.request_of("b")},
                    .past = {{.text = "crash"}}};
  table.table().resume(last, false, MembershipTable::Time(seconds(1000)));
  table.lose("z");
  table.come("b"), table.come("a");
  EXPECT_EQ(table.round(), "ab");
  EXPECT_EQ(table.table().participants().round, 5);
  EXPECT_EQ(table.table().participants().past.size(), 1u);
}

}  // namespace
}  // namespace tutti::launch::membership
