// Ranks that get into trouble on one of two nodes: both nodes must say which rank, on which host, and what it was.
#include <csignal>

#include "tests/hosts/cgroup.h"
#include "tests/hosts/on_hosts.h"
#include "tests/launch/await_file.h"
#include "tutti/base/sanitizers.h"
#include "tutti/base/text.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Ranks 0 and 1 on node-a, 2 and 3 on node-b; rank 2 is the culprit.
class Faults : public OnHosts {
 protected:
  Faults() : OnHosts(2) {}

  struct Both {
    Ended here, there;  // on node-a and on node-b
  };
  Both run_with(const Arguments& trouble, const Arguments& options = {}) {
    Arguments program = options;
    program.push_back(faulty());
    program.insert(program.end(), trouble.begin(), trouble.end());
    Running first = start(0, node(0, 2, "2", program)), second = start(1, node(1, 2, "2", program));
    const Both both{first.wait(), second.wait()};
    EXPECT_TRUE(first.nobody_left()) << first.census();
    EXPECT_TRUE(second.nobody_left()) << second.census();
    return both;
  }
};

class Signals : public Faults, public ::testing::WithParamInterface<int> {};

TEST_P(Signals, ThatKillARankAreNamedOnBothNodes) {
  const Both ended = run_with({"signal", "2", std::to_string(GetParam())});
  const std::string cause = " on node-b) was killed by " + std::string("SIG") + sigabbrev_np(GetParam());
  EXPECT_EQ(ended.here.code, 128 + GetParam());
  EXPECT_EQ(ended.there.code, 128 + GetParam());
  EXPECT_THAT(ended.here.err, AllOf(HasSubstr("rank 2 (pid "), HasSubstr(cause)));
  EXPECT_THAT(ended.there.err, AllOf(HasSubstr("the job failed: rank 2 (pid "), HasSubstr(cause)));
}
INSTANTIATE_TEST_SUITE_P(Each, Signals, ::testing::Values(SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL),
                         [](const auto& info) { return std::string(sigabbrev_np(info.param)); });

TEST_F(Faults, AnExceptionIsQuoted) {
  const Both ended = run_with({"throw", "2"});
  EXPECT_NE(ended.here.code, 0);
  EXPECT_THAT(ended.there.err, AllOf(HasSubstr("the job failed: rank 2 (pid "), HasSubstr("the loss is not a number")));
  EXPECT_THAT(ended.here.err, HasSubstr("rank 2 (pid "));
}

TEST_F(Faults, AnExitCodePassesThrough) {
  const Both ended = run_with({"exit", "2", "41"});
  EXPECT_EQ(ended.here.code, 41);
  EXPECT_EQ(ended.there.code, 41);
  EXPECT_THAT(ended.here.err, AllOf(HasSubstr("rank 2 (pid "), HasSubstr(" on node-b) exited with code 41")));
}

// It says that all is well and goes, while the others still count on it.
TEST_F(Faults, ARankThatExitsEarlyWithoutLeavingIsNamed) {
  const Both ended = run_with({"exit", "2", "0"});
  EXPECT_NE(ended.here.code, 0);
  EXPECT_NE(ended.there.code, 0);
  EXPECT_THAT(
      ended.here.err + ended.there.err,
      AnyOf(ContainsRegex("the job failed: rank 2 \\(pid [0-9]+ on node-b\\) exited with code 0 "
                          "while rank 3 still needed it\n"),
            ContainsRegex("the job failed: rank [01] \\(pid [0-9]+ on node-a\\) exited with code 1, because it lost "
                          "rank 2, which is on another node")));
}

TEST_F(Faults, ARankThatLeavesEarlyIsTheOnlyCulprit) {
  const Ended ended = start(0, {"run", "-n", "3", faulty(), "exit", "1", "0"}).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, AllOf(ContainsRegex("the job failed: rank 1 \\(pid [0-9]+ on node-a\\) exited with code 0 "
                                             "while rank [02] still needed it\n"),
                               HasSubstr("also ended: ranks 0, 2 were running and ended because of it"),
                               Not(HasSubstr("failed as well"))));
}

TEST_F(Faults, ARankThatEndsBeforeInitIsNotWaitedFor) {
  const Ended ended = start(0, {"run", "-n", "2", "sh", "-c", "[ $RANK = 1 ] || exec " + faulty() + " none"}).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, ContainsRegex("the job failed: rank 1 \\(pid [0-9]+ on node-a\\) exited with code 0 and never "
                                       "called tutti::init\\(\\), where rank 0 waits for it"));
}

TEST_F(Faults, TheRanksOfTheOtherNodeNameTheOneThatDied) {
  const Both ended = run_with({"signal", "2", std::to_string(SIGKILL)});
  EXPECT_THAT(ended.here.err, AllOf(HasSubstr("[0] "), HasSubstr("was killed by SIGKILL")));
  EXPECT_THAT(line_with(ended.here.err, "[0] PeerLost"),
              AllOf(HasSubstr("all_reduce #"), HasSubstr("rank 2 (pid "), HasSubstr("was killed by SIGKILL")));
}

TEST_F(Faults, ARankWithoutMemoryIsDistinguishedFromAKilledOne) {
#if TUTTI_ASAN
  GTEST_SKIP() << "ASan's own memory exceeds the limit, and the agent ends first";
#endif
  const auto group = Cgroup::make("memory");
  if (!group.ok()) GTEST_SKIP() << group.error().detail;
  must((*group)->limit_memory(200 << 20));
  const Arguments program = {faulty(), "memory", "1"};
  Running second = start(1, node(1, 2, "1", program), {}, (*group)->entering()),
          first = start(0, node(0, 2, "1", program));
  const Ended there = second.wait(), here = first.wait();
  EXPECT_EQ(there.code, 137);
  EXPECT_EQ(here.code, 137);
  EXPECT_THAT(here.err, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(there.err,
              AllOf(HasSubstr("the job failed: rank 1 (pid "), HasSubstr(" on node-b) was killed by SIGKILL"),
                    // with pages that the cgroup is not charged for
                    ContainsRegex("memory: it had ([^;]*at most )?(1[0-9]|2[0-4])[0-9][.0-9]* MiB"),
                    HasSubstr("the cgroup's limit is 200 MiB, of which "),
                    HasSubstr("; the out-of-memory killer struck while the job ran"),
                    HasSubstr("hint: the kernel's out-of-memory killer struck in this cgroup: fewer ranks, smaller "
                              "batches, or a higher memory limit")));
}

TEST_F(Faults, AStoppedRankIsReportedAtOnce) {
  const Arguments program = {faulty(), "stop", "2"};
  Running first = start(0, node(0, 2, "2", program)), second = start(1, node(1, 2, "2", program));
  second.await_err("is stopped (SIGSTOP or a debugger): the others will wait for it; kill -CONT ");
  first.await_out("ready", 2);
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().code, 143);
  const Ended there = second.wait();
  EXPECT_THAT(there.err, HasSubstr("rank 2 (pid "));
  EXPECT_TRUE(second.nobody_left()) << second.census();
}

class Hangs : public Faults, public ::testing::WithParamInterface<const char*> {};

TEST_P(Hangs, AreReportedWithTheStackOfTheRankThatTheOthersWaitFor) {
  const Both ended = run_with({GetParam(), "2"}, {"--hang-timeout", "2s"});
  EXPECT_EQ(ended.here.code, 124);
  EXPECT_EQ(ended.there.code, 124);
  EXPECT_THAT(
      ended.there.err + ended.here.err,
      AllOf(HasSubstr("; after 2 s (set by --hang-timeout) the job ends"),
            HasSubstr("all_reduce #11 (f32[1000], sum) on group world for rank 2"), HasSubstr("get_into_trouble")));
}
INSTANTIATE_TEST_SUITE_P(Each, Hangs, ::testing::Values("spin", "lock", "wait"),
                         [](const auto& info) { return std::string(info.param); });

// The others of its node wait for it, and so does the other node, which sees only that all its ranks wait. Half a
// minute: who is slow for less is not told.
TEST_F(Faults, AStragglerIsReportedWithItsUsageAndInTheStatusOfBothNodes) {
  const Arguments program = {"--job-id", "slow", faulty(), "slow", "2", "60"};
  Running first = start(0, node(0, 2, "2", program)), second = start(1, node(1, 2, "2", program));
  second.await_err("rank 2 (pid ");
  second.await_err(") all other ranks of this node waited for it; it used ");
  for (const int host : {0, 1}) {
    std::string status;
    for (const Deadline patience = Deadline::after_seconds(60); !patience.expired();) {
      status = start(host, {"status", "slow"}).wait().out;
      if (status.find("is slow") != std::string::npos) break;
    }
    EXPECT_THAT(status, AllOf(HasSubstr("\nrank 2 is slow: all others wait for it most of the time\n"),
                              ContainsRegex("\n   2  node-b +[0-9]+  slow ")));
  }
  first.send(SIGTERM);
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 143);
  EXPECT_EQ(there.code, 143);
  EXPECT_THAT(line_with(there.err, "is slow"),
              AllOf(HasSubstr(" of 60 checks ("), HasSubstr(" % of a core meanwhile")));
  EXPECT_THAT(here.err, Not(HasSubstr("is slow")));
}

// As the scheduler of a site does it, or another program on the same cores.
TEST_F(Faults, ARankStarvedOfCpuIsDistinguishedFromABusyOne) {
  const auto group = Cgroup::make("cpu");
  if (!group.ok()) GTEST_SKIP() << group.error().detail;
  must((*group)->limit_processor(0.03));
  Running running = start(0, {"run", "-n", "2", faulty(), "slow", "1", "10"});
  running.await_out("ready", 2);
  const auto children = hosts().shell(0, "cat /proc/" + std::to_string(running.agent()) + "/task/*/children");
  ASSERT_TRUE(children.ok());
  const std::vector<std::string> pids = split(std::string(trim(*children)), ' ');
  ASSERT_EQ(pids.size(), 2u);
  must((*group)->add(pid_t(*parse_int(pids[1]))));
  running.await_err("rank 1 (pid " + pids[1] + ") is slow: in ");
  running.await_err(" % of a core meanwhile, so it waits too: for its data, or for a core that a quota (cpu.max) or");
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
}

// A rank that SIGKILL cannot end, as one in a driver's call: it must not keep the agent from ending.
TEST_F(Faults, AnUnkillableRankDoesNotHoldTheAgent) {
  const auto group = Cgroup::make("freezer");
  if (!group.ok()) GTEST_SKIP() << group.error().detail;
  Running running = start(0, {"run", "-n", "2", "--grace", "200ms", "--signal-grace", "200ms", worker(), "pause"});
  running.await_out("ready", 2);
  const auto children = hosts().shell(0, "cat /proc/" + std::to_string(running.agent()) + "/task/*/children");
  ASSERT_TRUE(children.ok());
  const pid_t victim = std::atoi(children->c_str());
  ASSERT_GT(victim, 1);
  must((*group)->add(victim));
  must((*group)->set("freezer.state", "FROZEN"));
  running.send(SIGTERM);
  const Ended ended = running.wait();
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("process " + std::to_string(victim) +
                                   " (launch_worker) does not end on SIGKILL: it waits in the kernel for "));
}

TEST_F(Faults, ProcessesThatRunOut) {
  const auto group = Cgroup::make("pids");
  if (!group.ok()) GTEST_SKIP() << group.error().detail;
  must((*group)->set("pids.max", "5"));
  const Ended ended = start(0, {"run", "-n", "8", worker(), "pause"}, {}, (*group)->entering()).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("Resource temporarily unavailable"), HasSubstr("ulimit -u")));
}

TEST_F(Faults, DescriptorsThatRunOut) {
  const Ended ended =
      start(0, {"run", "-n", "8", worker(), "pause"}, {}, {"/bin/sh", "-c", "ulimit -n 20 && exec \"$@\"", "sh"})
          .wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("a process may have 20 open files here, and to start 8 ranks takes at least 55"),
                    HasSubstr("ulimit -n")));
}

TEST_F(Faults, WhatRanksLeftBehindIsEndedOnBothNodes) {
  const Arguments program = {worker(), "daemon", shared().path(), "exit"};
  Running first = start(0, node(0, 2, "1", program)), second = start(1, node(1, 2, "1", program));
  EXPECT_EQ(first.wait().code, 0);
  const Ended there = second.wait();
  EXPECT_EQ(there.code, 0);
  EXPECT_THAT(there.err, HasSubstr("ended what the ranks had left running: "));
}

// In a container no process above reaps what the ranks leave behind: the agent's supervisor is the first process there.
TEST_F(Faults, TheFirstProcessOfAContainerCollectsWhatRanksLeftBehind) {
  const Ended ended = start(0, {"run", "-n", "2", worker(), "daemon", shared().path(), "exit"}, {},
                            {"unshare", "--pid", "--fork", "--mount-proc"})
                          .wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, ContainsRegex("ended what the ranks had left running: launch_worker \\(pid [0-9]+\\), "
                                       "launch_worker \\(pid [0-9]+\\)"));
}

TEST_F(Faults, ASecondSignalLeavesAtOnceOnBothNodes) {
  const Arguments program = {"--signal-grace", "10min", worker(), "stubborn", shared().path()};
  Running first = start(0, node(0, 2, "1", program));
  Running second = start(1, node(1, 2, "1", {"--signal-grace", "10min", worker(), "pause"}));
  second.await_out("ready");
  await_file(shared().path() + "/deaf");
  first.send(SIGTERM);
  first.await_err("passing SIGTERM on to all ranks");
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().code, 143);
  EXPECT_EQ(second.wait().code, 143);
}

}  // namespace
}  // namespace tutti::testing
