// Jobs of real ranks that lose hosts and go on: with the rest, with a spare, with what comes back; and jobs that are
// told to stop, which save first.
#include <csignal>

#include "tests/hosts/on_hosts.h"
#include "tutti/base/text.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Healing : public OnHosts {
 protected:
  Healing() : OnHosts(3) {}

  // A node of one rank that meets the others on host 0, adds numbers up with them, and saves when it is told to stop.
  Running elastic(int host, const std::string& nnodes) {
    return start(host, {"run", "--nnodes", nnodes, "--rdzv-backend", "elastic", "--rdzv-endpoint", "node-a:29400",
                        "--rdzv-conf", "last_call_timeout=1,join_timeout=60", "--grace", "1s", faulty(), "save"});
  }
};

TEST_F(Healing, AJobThatLosesAHostContinuesAndTakesItBack) {
  Running a = elastic(0, "2:3"), b = elastic(1, "2:3");
  {
    Running c = elastic(2, "2:3");
    for (Running* node : {&a, &b, &c}) node->await_out(" of 3");
    must(hosts().power_off(2));
    a.await_err("(node-c) is lost: ");
    c.wait();
  }
  a.await_out(" of 2");
  b.await_out(" of 2");
  must(hosts().heal());
  Running again = elastic(2, "2:3");
  again.await_out(" of 3");
  a.await_out(" of 3", 2);
  b.await_out(" of 3", 2);
  a.send(SIGUSR1);  // the whole job; SIGTERM would take this node away and leave two
  for (Running* node : {&a, &b, &again}) {
    const Ended ended = node->wait();
    EXPECT_EQ(ended.code, 75) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("saved at step "));
  }
}

TEST_F(Healing, AHotSpareStepsIn) {
  Running a = elastic(0, "2"), b = elastic(1, "2");
  a.await_out(" of 2");
  b.await_out(" of 2");
  Running spare = elastic(2, "2");
  a.await_err("node-c at 10.77.0.3 joined and waits as a spare: 2 nodes take part");
  must(hosts().power_off(1));
  spare.await_out(" of 2");
  a.await_out(" of 2", 2);
  a.send(SIGTERM);
  EXPECT_EQ(a.wait().code, 75);
  EXPECT_EQ(spare.wait().code, 75);
  b.wait();
}

class Stopping : public OnHosts {
 protected:
  Stopping() : OnHosts(2) {}
};

TEST_F(Stopping, RanksOfBothNodesSaveAtOneStep) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    Running first = start(0, node(0, 2, "2", {faulty(), "save"})),
            second = start(1, node(1, 2, "2", {faulty(), "save"}));
    first.await_out("ready", 2);
    second.await_out("ready", 2);
    second.send(signal);
    const Ended here = first.wait(), there = second.wait();
    EXPECT_EQ(here.code, 75) << here.err;
    EXPECT_EQ(there.code, 75) << there.err;
    const std::string line = line_with(here.out, "saved at step ");
    const std::string step = line.substr(line.find("saved"));
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_THAT(rank < 2 ? here.out : there.out, HasSubstr("[" + std::to_string(rank) + "] " + step + "\n"));
  }
}

// A rank that crashes in the same place again and again, on a node that is not the first.
TEST_F(Stopping, ACrashLoopOnTwoNodesIsCode93) {
  const Arguments program = {"--max-restarts", "20", "--restart-pause",      "1ms", faulty(),
                             "signal",         "1",  std::to_string(SIGSEGV)};
  Running first = start(0, node(0, 2, "1", program)), second = start(1, node(1, 2, "1", program));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 93) << here.err;
  EXPECT_EQ(there.code, 93) << there.err;
  EXPECT_THAT(here.err, AllOf(HasSubstr("attempt 0 failed: rank 1 (pid "), HasSubstr("was killed by SIGSEGV")));
  EXPECT_THAT(here.err + there.err, HasSubstr("3 times in a row"));
}

}  // namespace
}  // namespace tutti::testing
