// Jobs that change their size, on hosts whose cables are cut, slow and lossy.
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Rounds : public OnHosts {
 protected:
  Rounds() : OnHosts(3) {}

  // An elastic node, which meets the others on host 0.
  static Arguments elastic(const std::string& nnodes, const Arguments& rest) {
    Arguments arguments = {"run",
                           "--nnodes",
                           nnodes,
                           "--rdzv-backend",
                           "elastic",
                           "--rdzv-endpoint",
                           "node-a:29400",
                           "--rdzv-conf",
                           "last_call_timeout=1,join_timeout=60",
                           "--no-tune",
                           "--grace",
                           "1s"};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  }
  static Arguments rank() { return {"sh", "-c", "echo \"world $WORLD_SIZE in $TUTTI_GENERATION\"; exec sleep 600"}; }
  static void end(Running& running) {
    running.send(SIGINT);
    EXPECT_EQ(running.wait().code, 130);
  }
};

TEST_F(Rounds, ANodeWithoutPowerIsDoneWithout) {
  Running a = start(0, elastic("1:3", rank())), b = start(1, elastic("1:3", rank())),
          c = start(2, elastic("1:3", rank()));
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in ");
  must(hosts().power_off(2));
  a.await_err("(node-c) is lost: no heartbeat of its agent arrived for ");
  a.await_out("world 2 in ");
  b.await_out("world 2 in ");
  end(a);
  b.wait();
}

TEST_F(Rounds, ACutNodeEndsItsRanksAndComesBack) {
  Running a = start(0, elastic("1:3", rank())), b = start(1, elastic("1:3", rank())),
          c = start(2, elastic("1:3", rank()));
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 0");
  const Deadline bound = Deadline::after_seconds(20);
  must(hosts().partition({2}));
  c.await_err("(node-a at 10.77.0.1): no heartbeat was answered for 2.");  // numbers go by arrival
  a.await_err("(node-c) is lost");
  EXPECT_FALSE(bound.expired());
  a.await_out("world 2 in 1");
  must(hosts().heal());
  for (Running* node : {&a, &b, &c})
    node->await_out("world 3 in 2");  // a signal that comes earlier ends one node alone
  end(a);
  b.wait(), c.wait();
}

TEST_F(Rounds, OneDirectionIsEnoughToBeCutOff) {
  Running a = start(0, elastic("1:3", rank())), b = start(1, elastic("1:3", rank()));
  a.await_out("world 2 in 0");
  b.await_out("world 2 in 0");
  must(hosts().cut(0, 1));  // node-b is heard, and hears nothing
  b.await_err("no heartbeat was answered");
  a.await_err("(node-b) is lost: no heartbeat of its agent arrived");
  a.await_out("world 1 in 1");
  end(a);
  b.send(SIGTERM);
  b.wait();
}

TEST_F(Rounds, LostPacketsAndAPauseDoNoHarm) {
  Running a = start(0, elastic("2", rank())), b = start(1, elastic("2", rank()));
  a.await_out("world 2 in 0");
  b.await_out("world 2 in 0");
  must(hosts().lose(0, 0.2));
  must(hosts().lose(1, 0.2));
  usleep(10'000'000);  // the time that must do no harm
  must(hosts().heal());
  kill(b.agent(), SIGSTOP);
  usleep(1'000'000);
  kill(b.agent(), SIGCONT);
  usleep(500'000);
  a.send(SIGINT);
  const Ended ended = a.wait();
  EXPECT_EQ(ended.code, 130);
  EXPECT_THAT(ended.err, AllOf(Not(HasSubstr("lost")), Not(HasSubstr("anew"))));
  b.wait();
}

TEST_F(Rounds, TwoNodesThatLoseEachOtherSayItOnBothSides) {
  Running a = start(0, node(0, 2, "1", {worker(), "pause"})), b = start(1, node(1, 2, "1", {worker(), "pause"}));
  a.await_out("ready");
  b.await_out("ready");
  must(hosts().partition({1}));
  const Ended here = a.wait(), there = b.wait();
  EXPECT_EQ(here.code, 4);
  EXPECT_EQ(there.code, 4);
  EXPECT_THAT(here.err, HasSubstr("node 1 (node-b) is lost: no heartbeat of its agent arrived for "));
  EXPECT_THAT(there.err, HasSubstr("node 1 (node-b) lost contact with the coordinator, node 0 (node-a at 10.77.0.1): "
                                   "no heartbeat was answered for 2."));
}

TEST_F(Rounds, AMinorityNeverContinues) {
  Running a = start(0, elastic("1:3", rank())), b = start(1, elastic("1:3", rank())),
          c = start(2, elastic("1:3", rank()));
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 0");
  must(hosts().partition({0}));
  for (Running* node : {&b, &c}) node->await_err("lost contact with the coordinator");
  a.await_err("fewer than half of the last round, and a minority never continues");
  for (Running* node : {&b, &c}) node->await_out("world 2 in 1");
  must(hosts().heal());
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 2");
  a.send(SIGINT);
  const Ended ended = a.wait();
  EXPECT_EQ(ended.code, 130);
  EXPECT_THAT(ended.err, HasSubstr("the store of the job is no longer served here"));
  EXPECT_THAT(ended.out, Not(HasSubstr("world 1 in ")));
  b.wait(), c.wait();
}

TEST_F(Rounds, TheAgentThatServesTheStoreIsDoneWithout) {
  Running a = start(0, elastic("2:3", rank())), b = start(1, elastic("2:3", rank())),
          c = start(2, elastic("2:3", rank()));
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 0");
  kill(a.agent(), SIGKILL);
  EXPECT_EQ(a.wait().code, 137);
  for (Running* node : {&b, &c}) {
    node->await_err("the nodes join again: ");
    node->await_out("world 2 in 1");
  }
  b.send(SIGINT);
  const Ended here = b.wait(), there = c.wait();
  EXPECT_EQ(here.code, 130);
  EXPECT_EQ(there.code, 130);
  EXPECT_THAT(here.err + there.err, HasSubstr("the store of the job is now served here, at 10.77.0."));
}

// It would begin a job of its own at its old endpoint; the node that took over tells it where the job is.
TEST_F(Rounds, TheFirstNodeThatIsStartedAgainFindsTheJob) {
  Running a = start(0, elastic("2:3", rank())), b = start(1, elastic("2:3", rank())),
          c = start(2, elastic("2:3", rank()));
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 0");
  kill(a.agent(), SIGKILL);
  EXPECT_EQ(a.wait().code, 137);
  for (Running* node : {&b, &c}) node->await_out("world 2 in 1");
  Running again = start(0, elastic("2:3", rank()));
  again.await_err("the job continues at 10.77.0.");
  for (Running* node : {&again, &b, &c}) node->await_out("world 3 in 2");
  b.send(SIGINT);
  const Ended here = b.wait(), there = c.wait(), back = again.wait();
  for (const Ended* ended : {&here, &there, &back}) EXPECT_EQ(ended->code, 130);
  EXPECT_THAT(
      here.err + there.err,
      HasSubstr("a node began to serve the job's store at its former address node-a:29400: it is redirected to "));
  for (const Ended* ended : {&here, &there})
    EXPECT_THAT(ended->err, HasSubstr("the nodes join again: node-a at 10.77.0.1 joined"));
  EXPECT_THAT(back.out, Not(HasSubstr("world 3 in 0")));
}

// Fewer nodes than MAX begin when the last call is over: here before anybody told it.
TEST_F(Rounds, TheFirstNodeThatIsStartedAgainAndBeganAJobOfItsOwnGivesItUp) {
  Running a = start(0, elastic("1:3", rank())), b = start(1, elastic("1:3", rank())),
          c = start(2, elastic("1:3", rank()));
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 0");
  kill(a.agent(), SIGKILL);
  EXPECT_EQ(a.wait().code, 137);
  for (Running* node : {&b, &c}) node->await_out("world 2 in 1");
  must(hosts().partition({0}));
  Running again = start(0, elastic("1:3", rank()));
  again.await_out("world 1 in 0");
  must(hosts().heal());
  again.await_err("began a job of its own, which continues at 10.77.0.");
  for (Running* node : {&again, &b, &c}) node->await_out("world 3 in 2");
  b.send(SIGINT);
  b.wait(), c.wait();
  EXPECT_EQ(again.wait().code, 130);
}

TEST_F(Rounds, TheHostOfTheStoreWithoutPowerIsDoneWithout) {
  Running a = start(0, elastic("2:3", rank())), b = start(1, elastic("2:3", rank())),
          c = start(2, elastic("2:3", rank()));
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 0");
  must(hosts().power_off(0));
  for (Running* node : {&b, &c}) {
    node->await_err("no heartbeat was answered for 2.");
    node->await_out("world 2 in 1");
  }
  b.send(SIGINT);
  const Ended here = b.wait(), there = c.wait();
  EXPECT_EQ(here.code, 130);
  EXPECT_EQ(there.code, 130);
  EXPECT_THAT(here.err + there.err, AllOf(HasSubstr("the store is lost for 2 of 3 nodes: its copy serves from now on"),
                                          HasSubstr("the store of the job is now served here, at 10.77.0.")));
}

TEST_F(Rounds, OfTwoNodesTheSecondContinuesAloneAfterTheFirstHasEnded) {
  Running a = start(0, elastic("1:2", rank())), b = start(1, elastic("1:2", rank()));
  a.await_out("world 2 in ");
  b.await_out("world 2 in ");
  kill(a.agent(), SIGKILL);
  EXPECT_EQ(a.wait().code, 137);
  b.await_err("the store of the job is now served here, at 10.77.0.2:29400");
  b.await_out("world 1 in ");
  end(b);
}

TEST_F(Rounds, OfTwoNodesNoneIsAMajority) {
  Arguments few = elastic("1:2", rank());
  *std::find(few.begin(), few.end(), "last_call_timeout=1,join_timeout=60") = "last_call_timeout=1,join_timeout=8";
  Running a = start(0, few), b = start(1, few);
  a.await_out("world 2 in ");
  b.await_out("world 2 in ");
  must(hosts().power_off(0));
  const Ended ended = b.wait();
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err, HasSubstr("(of two nodes one is no majority): a minority never continues"));
  EXPECT_THAT(ended.out, Not(HasSubstr("world 1 in ")));
}

TEST_F(Rounds, TheNodeThatKeepsTheCopyIsDoneWithout) {
  Running a = start(0, elastic("1:2", rank())), b = start(1, elastic("1:2", rank()));
  a.await_out("world 2 in 0");
  b.await_out("world 2 in 0");
  must(hosts().power_off(1));
  a.await_err("the store continues without it, because 1 of 2 nodes are here");
  a.await_out("world 1 in 1");
  end(a);
}

TEST_F(Rounds, AFirewallThatLetsNoDatagramsInIsNamed) {
  must(hosts().block_datagrams(0));
  Running a = start(0, elastic("2", rank()));
  const Ended ended = start(1, elastic("2", rank())).wait();
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("heartbeats (UDP) are not answered by the coordinator, node-a at 10.77.0.1:29400"),
                    HasSubstr("open UDP port 29400 on node-a")));
  a.send(SIGTERM);
  a.wait();
}

}  // namespace
}  // namespace tutti::testing
