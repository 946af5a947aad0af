// Agents that meet as they come, on loopback: a node that is lost, taken back, spare, or too few.
#include <csignal>

#include "tests/launch/several_nodes.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Elastic : public SeveralNodes {
 protected:
  Arguments node(const std::string& nnodes, const Arguments& rest,
                 const std::string& conf = "last_call_timeout=1") const {
    return with({"run", "--nnodes", nnodes, "--rdzv-backend", "elastic", "--rdzv-endpoint", port_.address(),
                 "--rdzv-conf", conf, "--no-tune", "--grace", "1s"},
                rest);
  }

  const test::ReservedPort port_;
};

TEST_F(Elastic, ANodeThatIsLostIsDoneWithoutAndTakenBack) {
  Running first(node("1:2", rank()), secret_);
  first.await_out("world 1 in 0");  // after the last call
  Running second(node("1:2", rank()), secret_);
  first.await_out("world 2 in 1, restart 0");
  second.await_out("world 2 in 1");
  kill(second.agent(), SIGKILL);
  second.wait();
  first.await_out("world 1 in 2");
  first.await_err("the nodes join again: node 1 (");
  Running third(node("1:2", rank()), secret_);
  third.await_out("world 2 in 3");
  end_all();
  EXPECT_EQ(third.wait().code, 0);
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("is lost: its agent ended without leaving the job"),
                               HasSubstr("joined: a new round begins with it in 1 s")));
  EXPECT_TRUE(first.nobody_left()) << first.census();
}

// The second node becomes node 0, and the third one then has the number with which the second began.
TEST_F(Elastic, StatusShowsTheCurrentNumbersOfTheNodes) {
  const std::string name = folder_.path().substr(folder_.path().rfind('/') + 1);  // no other test's job has it
  const Arguments program = with({"--job-id", name}, rank());
  Running first(node("1:2", program), secret_);
  first.await_out("world 1 in 0");
  Running second(node("1:2", program), secret_);
  second.await_out("world 2 in 1");
  kill(first.agent(), SIGKILL);
  first.wait();
  second.await_out("world 1 in 2");
  Running third(node("1:2", program), secret_);
  third.await_out("world 2 in 3");
  const Ended status = run({"status", name});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("job " + name));
  end_all();
  EXPECT_EQ(second.wait().code, 0);
  EXPECT_EQ(third.wait().code, 0);
}

TEST_F(Elastic, AHotSpareStepsIn) {
  Running first(node("2", rank()), secret_);
  first.await_err("1 of 2 nodes joined after ");  // it serves
  Running second(node("2", rank()), secret_);
  second.await_out("world 2 in 0");
  Running spare(node("2", with({"--node-rank", "2"}, rank())), secret_);  // a wish, as any here
  first.await_err("joined and waits as a spare: 2 nodes take part, --nnodes allows 2");
  kill(second.agent(), SIGKILL);
  second.wait();
  spare.await_out("world 2 in 1");
  first.await_out("world 2 in 1");
  end_all();
  EXPECT_EQ(first.wait().code, 0);
  EXPECT_EQ(spare.wait().code, 0);
}

TEST_F(Elastic, ASpareThatIsNotNeededEndsAsTheJobDoes) {
  Running first(node("1", rank()), secret_);
  first.await_out("world 1 in 0");
  Running spare(node("1", rank()), secret_);
  first.await_err("waits as a spare");
  end_all();
  EXPECT_EQ(first.wait().code, 0);
  const Ended ended = spare.wait();
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("this node is no longer needed: the job has ended"));
  EXPECT_EQ(ended.out, "");
}

TEST_F(Elastic, TooFewAreNamed) {
  const Ended ended = run(node("2:3", rank(), "join_timeout=1.5"), secret_);
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("Timeout: 1 of at least 2 nodes joined after "), HasSubstr(" at 127.0.0.1"),
                               HasSubstr("are the missing nodes started, with the same --nnodes and --rdzv-endpoint")));
}

TEST_F(Elastic, AFaultOnOneNodeRestartsAll) {
  const Arguments program = {"--max-restarts",
                             "1",
                             "--restart-pause",
                             "1ms",
                             "sh",
                             "-c",
                             "echo \"restart $TORCHELASTIC_RESTART_COUNT\"; [ $RANK = 1 ] && "
                             "[ $TUTTI_GENERATION = 0 ] && exit 7; [ $TUTTI_GENERATION = 1 ] || sleep 60"};
  Running first(node("2", program), secret_), second(node("2", program), secret_);
  const Ended one = first.wait(), two = second.wait();
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(two.code, 0) << two.err;
  for (const Ended* ended : {&one, &two}) {
    EXPECT_THAT(ended->out, AllOf(HasSubstr("restart 0\n"), HasSubstr("restart 1\n")));
    EXPECT_THAT(ended->err, AllOf(HasSubstr("attempt 0 failed: rank 1 (pid "), HasSubstr("exited with code 7")));
  }
}

// Its ranks save with all others at one step, as they must; then the others go on from there without it.
TEST_F(Elastic, ANodeThatGetsAStopSignalSavesAndLeaves) {
  const Arguments program = with({"-n", "2"}, resuming("1000000000"));
  Running first(node("1:2", program), secret_);
  first.await_out("on 2 ranks");
  Running second(node("1:2", program), secret_);
  first.await_out("on 4 ranks");
  await_next_save();  // it says that the ranks ask whether they should stop
  second.send(SIGTERM);
  const Ended left = second.wait();
  EXPECT_EQ(left.code, 75) << left.err;
  EXPECT_THAT(left.err,
              AllOf(HasSubstr("passing SIGTERM on to all ranks"),
                    HasSubstr("all ranks of this node have saved: it leaves the job, and the other nodes continue"),
                    Not(HasSubstr("failed"))));
  first.await_err(") has left");
  first.await_out("on 2 ranks", 2);
  await_next_save();
  first.send(SIGTERM);  // one node is as few as may be: this ends the job
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("saved at step "));
  EXPECT_TRUE(first.nobody_left()) << first.census();
}

// The one that serves the store is no exception: another one has a copy, and serves from then on.
TEST_F(Elastic, TheFirstNodeThatGetsAStopSignalSavesAndLeavesToo) {
  const Arguments program = resuming("1000000000");
  Running first(node("1:2", program), secret_);
  first.await_out("on 1 ranks");
  Running second(node("1:2", program), secret_);
  first.await_out("on 2 ranks");
  await_next_save();
  first.send(SIGTERM);
  const Ended left = first.wait();
  EXPECT_EQ(left.code, 75) << left.err;
  EXPECT_THAT(left.err,
              AllOf(HasSubstr("all ranks of this node have saved: it leaves the job, and the other nodes continue"),
                    Not(HasSubstr("failed"))));
  second.await_err("the store of the job is now served here");
  second.await_out("on 1 ranks");
  await_next_save();
  second.send(SIGTERM);
  const Ended ended = second.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the nodes join again: node 0 ("), HasSubstr(") has left")));
}

TEST_F(Elastic, WithTheFailoverSwitchedOffTheJobEndsWithTheNodeThatServesItsStore) {
  const std::string conf = "last_call_timeout=1,join_timeout=3,failover=false,is_host=";
  Running first(node("1:2", rank(), conf + "true"), secret_);
  first.await_out("world 1 in 0");
  Running second(node("1:2", rank(), conf + "false"), secret_);
  second.await_out("world 2 in 1");
  kill(first.agent(), SIGKILL);
  first.wait();
  const Ended ended = second.wait();
  EXPECT_EQ(ended.code, 4) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("Unreachable: cannot connect to " + port_.address() + " after 3"),
                               Not(HasSubstr("is now served here"))));
}

// Nobody has failed, so nobody is broken off: the ranks of all nodes save at one step, and go on from there.
TEST_F(Elastic, TheRunningNodesSaveForANodeThatJoins) {
  const Arguments program =
      with({"sh", "-c", "echo \"world $WORLD_SIZE\"; exec \"$0\" \"$@\""}, resuming("1000000000"));
  Running first(node("2:3", program), secret_), second(node("2:3", program), secret_);
  await_next_save();
  Running third(node("2:3", program), secret_);
  third.await_out("world 3");
  await_next_save();
  third.send(SIGINT);
  const Ended one = first.wait(), two = second.wait();
  third.wait();
  for (const Ended* ended : {&one, &two}) {
    const std::string until_then = ended->err.substr(0, ended->err.find("was asked to stop by SIGINT"));
    EXPECT_THAT(until_then, AllOf(HasSubstr("the nodes join again: "), HasSubstr(" joined"), Not(HasSubstr("PeerLost")),
                                  Not(HasSubstr("failed"))));
  }
  const std::string out = one.out + two.out, words = "saved at step ";
  const auto saved = out.find(words);
  ASSERT_NE(saved, std::string::npos) << out;
  const std::string step = out.substr(saved + words.size(), out.find('\n', saved) - saved - words.size());
  EXPECT_THAT(out, HasSubstr("from step " + step + " on 3 ranks"));
}

TEST_F(Elastic, TooFewNodesToContinueSaveAndEndTogether) {
  const Arguments program = resuming("1000000000");
  Running first(node("2:3", program), secret_), second(node("2:3", program), secret_);
  await_next_save();
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().code, 75);
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("has left")));
}

TEST_F(Elastic, OtherNumbersOfNodesAreRejected) {
  Running first(node("1:2", rank()), secret_);
  first.await_out("world 1 in 0");
  const Ended ended = run(node("1:3", rank()), secret_);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("counts 1:3 nodes (--nnodes), but the coordinator expects 1:2"));
  end_all();
  EXPECT_EQ(first.wait().code, 0) << "a latecomer that does not fit disturbs nobody";
}

TEST_F(Elastic, WrongUsageIsReported) {
  const auto told = [&](const Arguments& rest) {
    Arguments arguments = {"run"};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const Ended ended = run(arguments, secret_);
    EXPECT_EQ(ended.code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(told({"--nnodes", "2:1", "sh"}), HasSubstr("or MIN:MAX, not '2:1'"));
  EXPECT_THAT(told({"--rdzv-backend", "elastic", "sh"}), HasSubstr("needs --rdzv-endpoint"));
  EXPECT_THAT(told({"--rdzv-backend", "etcd", "--rdzv-endpoint", "127.0.0.1", "sh"}), HasSubstr("needs --rdzv-id"));
  EXPECT_THAT(told({"--rdzv-backend", "zookeeper", "sh"}), HasSubstr("'zookeeper' is not known"));
  EXPECT_THAT(told({"--rdzv-conf", "store_type=file", "sh"}), HasSubstr("store_type has no meaning for tutti run"));
}

}  // namespace
}  // namespace tutti::testing
