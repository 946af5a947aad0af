// Nodes and agents that go away while a job runs.
#include <csignal>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Lost : public OnHosts {
 protected:
  Lost() : OnHosts(2) {}
};

TEST_F(Lost, ANodeWithoutPowerIsNamed) {
  Running first = start(0, node(0, 2, "2", {worker(), "pause"})),
          second = start(1, node(1, 2, "1", {worker(), "pause"}));
  first.await_out("ready", 2);
  second.await_out("ready");
  must(hosts().power_off(1));
  const Ended here = first.wait();
  EXPECT_NE(here.code, 0);
  EXPECT_THAT(here.err, HasSubstr("node 1 (node-b) is lost: no heartbeat of its agent arrived for "));
}

TEST_F(Lost, AKilledAgentLeavesNoProcessAndIsNamed) {
  Running first = start(0, node(0, 2, "2", {worker(), "pause"})),
          second = start(1, node(1, 2, "2", {worker(), "pause"}));
  first.await_out("ready", 2);
  second.await_out("ready", 2);
  kill(second.agent(), SIGKILL);
  EXPECT_EQ(second.wait().code, 137);
  EXPECT_TRUE(second.nobody_left()) << second.census();
  const Ended here = first.wait();
  EXPECT_NE(here.code, 0);
  EXPECT_THAT(here.err, HasSubstr("node 1 (node-b) is lost"));
}

TEST_F(Lost, ARankKilledOnOneNodeIsTheCauseOnBoth) {
  const Arguments program = {worker(), "fail", "2", std::to_string(-SIGSEGV), shared().path()};
  Running first = start(0, node(0, 2, "2", program)), second = start(1, node(1, 2, "1", program));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 128 + SIGSEGV);
  EXPECT_EQ(there.code, 128 + SIGSEGV);
  const char* cause = " on node-b) was killed by SIGSEGV (segmentation fault)";
  EXPECT_THAT(here.err, AllOf(HasSubstr("rank 2 (pid "), HasSubstr(cause)));
  EXPECT_THAT(there.err, AllOf(HasSubstr("the job failed: rank 2 (pid "), HasSubstr(cause)));
}

}  // namespace
}  // namespace tutti::testing
