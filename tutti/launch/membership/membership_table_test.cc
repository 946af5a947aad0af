#include "tutti/launch/membership/membership_table.h"

#include <gmock/gmock.h>

#include "tutti/base/text.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A gathering with a clock of its own, and what came out of it.
class Book {
 public:
  explicit Book(Limits limits) : limits_(limits), book_(limits, "a", now_) {}

  JoinRequest comer(const std::string& id, int wanted = -1) const {
    return {.id = id,
            .wanted = wanted,
            .min = limits_.min,
            .max = limits_.max,
            .note = {.host = "host-" + id, .address = "10.0.0." + std::to_string(int(id[0] - 'a' + 1))}};
  }
  // Each time with the next visit, as an agent does that has left its round.
  void come(const std::string& id, int wanted = -1) {
    JoinRequest next = comer(id, wanted);
    next.visit = ++visits_[id];
    come(std::move(next));
  }
  void come(JoinRequest comer) { book_.come(std::move(comer), now_), collect(); }
  void lose(const std::string& id) { book_.lose(id, "is lost: nothing was heard of it", false, now_), collect(); }
  void is_dead(const std::string& id) { book_.lose(id, "is lost", true, now_), collect(); }
  void leave(const std::string& id) { book_.leave(id, now_), collect(); }
  void fault(bool goes_on) { book_.end(book_.roster().round, Fault{.text = "crash"}, goes_on, now_), collect(); }
  void is_alive(const std::string& id, MembershipTable::Time when) { book_.is_alive(id, when, now_), collect(); }
  MembershipTable::Time time() const { return now_; }
  void pass(Duration time) {
    for (const auto end = now_ + time; now_ < end; now_ += std::chrono::milliseconds(100)) book_.tick(now_);
    collect();
  }

  // The ids of the round that has come together since the last look, by node; empty: none.
  std::string round() {
    std::string ids;
    for (const MembershipStep& step : steps_)
      if (step.kind == MembershipStep::Kind::kComplete) {
        ids.clear();
        for (const JoinRequest& node : step.roster.nodes) ids += node.id;
      }
    std::erase_if(steps_, [](const MembershipStep& step) { return step.kind == MembershipStep::Kind::kComplete; });
    return ids;
  }
  // What has been said of this kind since the last look.
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
  MembershipTable& book() { return book_; }
  std::string waiting() const { return book_.waiting_words(now_); }

 private:
  void collect() {
    for (MembershipStep& step : book_.take()) steps_.push_back(std::move(step));
  }

  MembershipTable::Time now_{seconds(1000)};
  std::map<std::string, int> visits_;
  Limits limits_;
  MembershipTable book_;
  std::vector<MembershipStep> steps_;
};

using enum MembershipStep::Kind;

TEST(MembershipTable, IsCompleteAtOnceWithAllThatMayTakePart) {
  Book book({.min = 2, .max = 3});
  book.come("a"), book.come("b");
  EXPECT_EQ(book.round(), "");
  book.come("c");
  EXPECT_EQ(book.round(), "abc");
  EXPECT_EQ(book.book().roster().round, 0);
}

TEST(MembershipTable, TheLastCallEndsTheWaitForMore) {
  Book book({.min = 2, .max = 3, .last_call = seconds(30)});
  book.come("b");
  book.pass(seconds(60));
  EXPECT_EQ(book.round(), "") << "one is too few";
  book.come("a");
  book.pass(seconds(29));
  EXPECT_EQ(book.round(), "");
  EXPECT_THAT(book.waiting(), HasSubstr("the last call for more lasts 1 s"));
  book.pass(seconds(2));
  EXPECT_EQ(book.round(), "ba") << "as they came";
}

// The last call may be longer than what is left of the time to join.
TEST(MembershipTable, MinNodesBeginWhenTheTimeToJoinIsOver) {
  Book book({.min = 2, .max = 3, .join = seconds(6), .last_call = seconds(5)});
  book.come("a");
  book.pass(seconds(3));
  book.come("b");
  book.pass(milliseconds(2900));
  EXPECT_EQ(book.round(), "");
  book.pass(milliseconds(300));
  EXPECT_EQ(book.round(), "ab");
  EXPECT_EQ(book.told(MembershipStep::Kind::kRefuse), "");
}

TEST(MembershipTable, NumbersDecideTheOrder) {
  Book book({.min = 3, .max = 3, .numbered = true});
  book.come("a", 2), book.come("b", 0), book.come("c", 1);
  EXPECT_EQ(book.round(), "bca");
}

TEST(MembershipTable, WhoIsMissingIsNamed) {
  Book book({.min = 3, .max = 3, .numbered = true, .join = seconds(300)});
  book.come("b", 1);
  book.pass(seconds(12));
  EXPECT_EQ(book.waiting(),
            "1 of 3 nodes have come after 12 s of 5 min: node 1 (host-b at 10.0.0.2); missing: nodes 0, 2");
  book.pass(seconds(290));
  EXPECT_THAT(book.told(kRefuse), AllOf(HasSubstr("b: Timeout: 1 of 3 nodes have come after 5 min"),
                                        HasSubstr("missing: nodes 0, 2"), HasSubstr("are the missing nodes started")));
}

TEST(MembershipTable, TheRestGoesOnWithoutALostNode) {
  Book book({.min = 1, .max = 3});
  book.come("a"), book.come("b"), book.come("c");
  ASSERT_EQ(book.round(), "abc");
  book.lose("b");
  EXPECT_EQ(book.told(kEndRound), "node 1 (host-b) is lost: nothing was heard of it\n");
  book.come("c");
  EXPECT_EQ(book.round(), "") << "a has not come yet";
  book.come("a");
  EXPECT_EQ(book.round(), "ac") << "without a last call: nobody else is known";
  EXPECT_EQ(book.book().roster().round, 1);
}

TEST(MembershipTable, ALostNodeIsTakenBack) {
  Book book({.min = 1, .max = 2, .last_call = seconds(3)});
  book.come("a"), book.come("b");
  ASSERT_EQ(book.round(), "ab");
  book.lose("b"), book.come("a");
  ASSERT_EQ(book.round(), "a");
  EXPECT_THAT(book.told(kEndRound), HasSubstr("node 1 (host-b) is lost"));
  book.come("d");  // another process of the same host
  EXPECT_THAT(book.told(kSay), HasSubstr("host-d at 10.0.0.4 has come: a new round begins with it in 3 s"));
  EXPECT_EQ(book.told(kEndRound), "");
  book.pass(seconds(4));
  EXPECT_EQ(book.told(kEndRound), "host-d at 10.0.0.4 has come\n");
  book.come("a");
  EXPECT_EQ(book.round(), "ad");
}

TEST(MembershipTable, ASpareStepsInAndNotBefore) {
  Book book({.min = 2, .max = 2});
  book.come("a"), book.come("b");
  ASSERT_EQ(book.round(), "ab");
  book.come("c");
  EXPECT_EQ(book.told(kSay),
            "host-c at 10.0.0.3 has come and waits as a spare: 2 nodes take part, --nnodes allows 2\n");
  book.pass(seconds(100));
  EXPECT_EQ(book.told(kEndRound), "");
  book.fault(true), book.come("b");
  EXPECT_EQ(book.round(), "") << "a is on its way";
  book.come("a");
  EXPECT_EQ(book.round(), "ab");
  book.lose("a");
  book.come("b");
  EXPECT_EQ(book.round(), "bc");
}

// etcd tells who of those that are silent lives: b does, behind a cut.
TEST(MembershipTable, WithAWitnessAFewGoOnOnceTheOthersAreKnownToBeDead) {
  Book book({.min = 1, .max = 5, .witness = true});
  for (const char* id : {"a", "b", "c", "d", "e"}) book.come(id);
  ASSERT_EQ(book.round(), "abcde");
  for (const char* id : {"b", "c", "d", "e"}) book.lose(id);
  book.come("a");
  EXPECT_EQ(book.round(), "");
  EXPECT_TRUE(book.book().in_minority());
  for (const char* id : {"c", "d"}) book.is_dead(id);
  EXPECT_EQ(book.round(), "");
  book.is_dead("e");
  EXPECT_EQ(book.round(), "a");
  EXPECT_FALSE(book.book().in_minority());
}

TEST(MembershipTable, AMinorityNeverGoesOn) {
  Book book({.min = 1, .max = 5, .join = seconds(60)});
  for (const char* id : {"a", "b", "c", "d", "e"}) book.come(id);
  ASSERT_EQ(book.round(), "abcde");
  book.lose("c"), book.lose("d"), book.lose("e");
  book.come("a"), book.come("b");
  book.pass(seconds(50));
  EXPECT_EQ(book.round(), "");
  EXPECT_THAT(book.waiting(), AllOf(HasSubstr("fewer than half of the last round, and a minority never goes on"),
                                    HasSubstr("missing: node 2 (host-c at 10.0.0.3), lost, node 3")));
  book.come("d");  // the cut has healed
  EXPECT_EQ(book.round(), "abd");
}

TEST(MembershipTable, TheDeadAreNoMajority) {
  Book book({.min = 1, .max = 5});
  for (const char* id : {"a", "b", "c", "d", "e"}) book.come(id);
  ASSERT_EQ(book.round(), "abcde");
  book.leave("c"), book.leave("d"), book.leave("e");
  EXPECT_THAT(book.told(kEndRound), HasSubstr("node 2 (host-c) has left"));
  book.come("a"), book.come("b");
  EXPECT_EQ(book.round(), "ab");
}

TEST(MembershipTable, TooFewAreNamedAndEndTheJob) {
  Book book({.min = 2, .max = 3, .join = seconds(60)});
  book.come("a"), book.come("b"), book.come("c");
  ASSERT_EQ(book.round(), "abc");
  book.leave("b"), book.leave("c");
  book.come("a");
  book.pass(seconds(61));
  EXPECT_THAT(book.told(kRefuse), HasSubstr("a: Timeout: 1 of at least 2 nodes have come after 60 s of 60 s"));
  EXPECT_TRUE(book.book().over());
}

TEST(MembershipTable, AJobOfFixedSizeEndsWithItsFirstLostNode) {
  Book book({.min = 2, .max = 2, .numbered = true});
  book.come("a", 0), book.come("b", 1);
  ASSERT_EQ(book.round(), "ab");
  book.lose("b");
  EXPECT_EQ(book.told(kFail), "node 1 (host-b) is lost: nothing was heard of it\n");
  book.fault(false);
  EXPECT_TRUE(book.book().over());
}

TEST(MembershipTable, AJobOfFixedSizeWithRestartsWaitsForASuccessor) {
  Book book({.min = 2, .max = 2, .numbered = true});
  book.come("a", 0), book.come("b", 1);
  ASSERT_EQ(book.round(), "ab");
  book.lose("b"), book.fault(true), book.come("a", 0);
  book.pass(seconds(40));
  EXPECT_THAT(book.waiting(), HasSubstr("missing: node 1 (host-b at 10.0.0.2), lost"));
  book.come("c", 1);
  EXPECT_EQ(book.round(), "ac");
  EXPECT_EQ(book.book().roster().past.size(), 1u);
}

TEST(MembershipTable, ContradictionsAreToldToAll) {
  Book book({.min = 2, .max = 2, .numbered = true});
  JoinRequest first = book.comer("a", 0), second = book.comer("b", 1);
  first.note.listed = {1, 1}, second.note.listed = {1, 3};
  book.come(first), book.come(second);
  EXPECT_EQ(book.round(), "");
  EXPECT_THAT(book.told(kRefuse), HasSubstr("Mismatch: node 0 was given -n 1,1, but node 1 -n 1,3"));
}

TEST(MembershipTable, TwoOfOneNumberAreToldApart) {
  Book book({.min = 2, .max = 2, .numbered = true, .lost_after = seconds(2)});
  JoinRequest first = book.comer("a", 0), second = book.comer("c", 0);
  first.note.pid = 71, second.note.pid = 72;
  book.come(first), book.come(second);
  EXPECT_EQ(book.told(kRefuse), "") << "the first may be dead, which nobody knows yet";
  book.pass(seconds(4));
  EXPECT_THAT(book.told(kRefuse),
              AllOf(HasSubstr("c: Mismatch: node 0 (host-a at 10.0.0.1, pid 71) takes part already (hint: every node "
                              "needs its own --node-rank"),
                    HasSubstr("a: Mismatch: node 0 (host-c at 10.0.0.3, pid 72) was turned away: node 0 (host-a at "
                              "10.0.0.1, pid 71) takes part already")));
}

TEST(MembershipTable, ATwinOfANodeThatIsHeardIsToldAtOnce) {
  Book book({.min = 2, .max = 2, .numbered = true});
  book.come("a", 0), book.come("b", 1);
  ASSERT_EQ(book.round(), "ab");
  EXPECT_THAT(book.book().doubted(), IsEmpty());
  const auto before = book.time();
  book.pass(milliseconds(100));
  book.come("c", 1);
  EXPECT_THAT(book.book().doubted(), ElementsAre("b"));
  book.is_alive("b", before);
  EXPECT_EQ(book.told(kRefuse), "") << "that was before its twin came";
  book.pass(milliseconds(200));
  book.is_alive("a", book.time());
  EXPECT_EQ(book.told(kRefuse), "");
  book.is_alive("b", book.time());
  EXPECT_THAT(book.told(kRefuse), HasSubstr("c: Mismatch: node 1 (host-b at 10.0.0.2) takes part already"));
  EXPECT_THAT(book.told(kSay), HasSubstr("node 1 (host-c at 10.0.0.3) was turned away: node 1 (host-b"));
  EXPECT_THAT(book.book().doubted(), IsEmpty());
  EXPECT_TRUE(book.book().running());
}

TEST(MembershipTable, ATwinIsNoSpareWhenTheJobEnds) {
  Book book({.min = 2, .max = 2, .numbered = true});
  book.come("a", 0), book.come("b", 1), book.come("c", 1);
  book.fault(false);
  EXPECT_THAT(book.told(kRefuse), AllOf(HasSubstr("c: Mismatch: node 1 (host-b at 10.0.0.2) takes part already"),
                                        Not(HasSubstr("the job has ended"))));
}

TEST(MembershipTable, ASuccessorThatCameTooLateHearsHowTheJobEnded) {
  Book book({.min = 2, .max = 2, .numbered = true});
  book.come("a", 0), book.come("b", 1), book.come("c", 1);
  book.lose("b"), book.fault(false);
  EXPECT_EQ(book.told(kRefuse), "c: Aborted: the job has ended\n");
}

TEST(MembershipTable, ASuccessorTakesTheNumberOfTheDead) {
  Book book({.min = 2, .max = 2, .numbered = true, .lost_after = seconds(2)});
  book.come("a", 0), book.come("c", 0);
  book.pass(seconds(1));
  book.lose("a");
  book.come("b", 1);
  book.pass(seconds(1));
  EXPECT_EQ(book.round(), "cb");
}

TEST(MembershipTable, DifferentNumbersOfNodesAreToldToAll) {
  Book book({.min = 2, .max = 2, .numbered = true});
  book.come("a", 0);
  JoinRequest other = book.comer("b", 1);
  other.min = other.max = 3;
  book.come(other);
  EXPECT_THAT(book.told(kRefuse), AllOf(HasSubstr("b: Mismatch: node 1 (host-b at 10.0.0.2) counts 3 nodes (--nnodes), "
                                                  "but where the nodes meet 2 are expected (hint: give all nodes the "
                                                  "same --nnodes)"),
                                        Not(HasSubstr("--node-rank")),
                                        HasSubstr("a: Mismatch: node 1 (host-b at 10.0.0.2) was turned away")));
}

TEST(MembershipTable, WhoComesAfterAContradictionIsToldAsWell) {
  Book book({.min = 2, .max = 2, .numbered = true});
  JoinRequest other = book.comer("b", 1);
  other.min = other.max = 3;
  book.come(other);
  book.come("a", 0);
  EXPECT_THAT(book.told(kRefuse), HasSubstr("a: Mismatch: node 1 (host-b at 10.0.0.2) was turned away"));
}

TEST(MembershipTable, NodesOfDifferentReleasesAreToldToAll) {
  Book book({.min = 2, .max = 2});
  book.come("a");
  JoinRequest other = book.comer("b");
  other.note.release = "0.0.9";
  book.come(other);
  EXPECT_THAT(book.told(kRefuse),
              AllOf(HasSubstr("b: Mismatch: host-b at 10.0.0.2 runs tutti 0.0.9, but where the nodes "
                              "meet it is tutti " TUTTI_VERSION),
                    HasSubstr("install the same release on all nodes"), HasSubstr("a: Mismatch: ")));
  Book running({.min = 1, .max = 2});
  running.come("a");
  running.pass(seconds(60));
  EXPECT_EQ(running.round(), "a");
  other.note.release.clear();
  running.come(other);
  EXPECT_THAT(running.told(kRefuse),
              AllOf(HasSubstr("b: Mismatch: host-b at 10.0.0.2 runs an older tutti, but "), Not(HasSubstr("a: "))));
}

TEST(MembershipTable, ALatecomerThatDoesNotFitDisturbsNobody) {
  Book book({.min = 2, .max = 2, .numbered = true});
  book.come("a", 0), book.come("b", 1);
  ASSERT_EQ(book.round(), "ab");
  book.come("c", 7);
  EXPECT_THAT(book.told(kRefuse), HasSubstr("c: Mismatch: node 7 (host-c at 10.0.0.3) is not one of 2 nodes"));
  EXPECT_TRUE(book.book().running());
}

TEST(MembershipTable, WhoComesBackWasCutOff) {
  Book book({.min = 1, .max = 2});
  book.come("a"), book.come("b");
  ASSERT_EQ(book.round(), "ab");
  book.come("b");
  EXPECT_THAT(book.told(kEndRound), HasSubstr("node 1 (host-b at 10.0.0.2) has left the round"));
  book.come("a");
  EXPECT_EQ(book.round(), "ab");
}

TEST(MembershipTable, WhatIsSaidTwiceEndsNothing) {
  Book book({.min = 2, .max = 2});
  const JoinRequest b = book.comer("b");
  book.come("a"), book.come(b);
  ASSERT_EQ(book.round(), "ab");
  book.come(b);
  EXPECT_TRUE(book.book().running());
}

TEST(MembershipTable, FaultsAreRemembered) {
  Book book({.min = 1, .max = 2});
  book.come("a"), book.come("b");
  book.fault(true), book.come("a"), book.come("b");
  book.lose("b"), book.come("a");
  ASSERT_EQ(book.book().roster().past.size(), 1u) << "a lost node is no fault";
  EXPECT_EQ(book.book().roster().past[0].text, "crash");
}

TEST(MembershipTable, TheEndSendsSparesHome) {
  Book book({.min = 1, .max = 1});
  book.come("a"), book.come("b");
  book.fault(false);
  EXPECT_EQ(book.told(kRefuse), "b: Aborted: the job has ended\n");
  book.come("c");
  EXPECT_EQ(book.told(kRefuse), "c: Aborted: the job has ended\n");
  EXPECT_EQ(book.book().others(), 0u);
}

TEST(MembershipTable, AnotherCoordinatorGoesOn) {
  Book book({.min = 1, .max = 3});
  Participants last{
      .round = 4, .nodes = {book.comer("z"), book.comer("a"), book.comer("b")}, .past = {{.text = "crash"}}};
  book.book().resume(last, false, MembershipTable::Time(seconds(1000)));
  book.lose("z");
  book.come("b"), book.come("a");
  EXPECT_EQ(book.round(), "ab");
  EXPECT_EQ(book.book().roster().round, 5);
  EXPECT_EQ(book.book().roster().past.size(), 1u);
}

}  // namespace
}  // namespace tutti
