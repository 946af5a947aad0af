// Several agents on loopback, as on several hosts: who gets which ranks, and how one node's failure ends the others.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/launch/await_file.h"
#include "tests/launch/several_nodes.h"
#include "tutti/transport/socket.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class Nodes : public SeveralNodes {
 protected:
  Arguments node(int number, int nodes, const std::string& ranks, const Arguments& rest) const {
    return with({"run", "--nnodes", std::to_string(nodes), "--node-rank", std::to_string(number), "--master-addr",
                 "127.0.0.1", "--master-port", master_port_.text(), "--store-port", store_port_.text(), "-n", ranks,
                 "--connect-timeout", "50s"},
                rest);
  }

  const test::ReservedPort master_port_, store_port_;
};

TEST_F(Nodes, UnequalCountsGiveTheRunningSum) {
  const Arguments program = {"-q",         worker(),     "env",         "RANK",       "LOCAL_RANK",
                             "WORLD_SIZE", "GROUP_RANK", "MASTER_PORT", "TUTTI_STORE"};
  Running second(node(1, 3, "1", program), secret_), third(node(2, 3, "2", program), secret_),
      first(node(0, 3, "3", program), secret_);
  const Ended ends[] = {first.wait(), second.wait(), third.wait()};
  for (const Ended& end : ends) EXPECT_EQ(end.code, 0) << end.err;
  const auto lines = [&](int rank, int local, int group) {
    const std::string prefix = "\\[" + std::to_string(rank) + "\\] ";
    const std::string near = group == 0 ? "unix:@tutti-[0-9a-f]+," : "";  // only there
    return prefix + "RANK=" + std::to_string(rank) + "\n" + prefix + "LOCAL_RANK=" + std::to_string(local) + "\n" +
           prefix + "WORLD_SIZE=6\n" + prefix + "GROUP_RANK=" + std::to_string(group) + "\n" + prefix +
           "MASTER_PORT=" + master_port_.text() + "\n" + prefix + "TUTTI_STORE=" + near + store_port_.address() + "\n";
  };
  EXPECT_THAT(ends[0].out,
              AllOf(ContainsRegex(lines(0, 0, 0)), ContainsRegex(lines(1, 1, 0)), ContainsRegex(lines(2, 2, 0))));
  EXPECT_THAT(ends[1].out, MatchesRegex(lines(3, 0, 1)));
  EXPECT_THAT(ends[2].out, AllOf(ContainsRegex(lines(4, 0, 2)), ContainsRegex(lines(5, 1, 2))));
}

TEST_F(Nodes, AFailureEndsTheOthersAndNamesItsNode) {
  // Ranks 0 and 1 on node 0; rank 2 on node 1 fails when all are up.
  const Arguments program = {worker(), "fail", "2", "7", folder_.path()};
  Running first(node(0, 2, "2,1", program), secret_), second(node(1, 2, "2,1", program), secret_);
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 7);
  EXPECT_EQ(there.code, 7);
  EXPECT_THAT(there.err, AllOf(HasSubstr("the job failed: rank 2 (pid "), HasSubstr("exited with code 7"),
                               HasSubstr("[2] about to fail")));
  EXPECT_THAT(here.err,
              AllOf(HasSubstr("stopping the ranks of this node: rank 2 (pid "), HasSubstr("the report is on that node"),
                    ContainsRegex("the ranks of this node \\(.*\\):\n.*  also ended: ranks 0, 1 were running")));
  EXPECT_TRUE(first.nobody_left()) << first.census();
  EXPECT_TRUE(second.nobody_left()) << second.census();
}

TEST_F(Nodes, TheAgentsOfOneRunShareALogFolder) {
  const std::string logs = folder_.path() + "/logs";
  for (const std::string run : {"first", "second"}) {
    const Arguments program = {"-q", "--log-dir", logs, "--job-id", "j", "--", "sh", "-c", "echo $0 $RANK", run};
    Running second(node(1, 2, "1,2", program), secret_), first(node(0, 2, "1,2", program), secret_);
    const Ended here = first.wait(), there = second.wait();
    EXPECT_EQ(here.code + there.code, 0) << here.err << there.err;
    for (const std::string rank : {"0", "1", "2"})
      EXPECT_EQ(read_file(logs + "/j/attempt_0/rank_" + rank + "/stdout.log"), run + " " + rank + "\n");
  }
  int folders = 0;
  for ([[maybe_unused]] const auto& folder : std::filesystem::directory_iterator(logs)) ++folders;
  EXPECT_EQ(folders, 2) << "of this run, and of the one before, which was moved away once";
}

// The store that is asked whose failure was the first answers nothing: its agent is stopped. The line about the failure
// comes when the store's calls have had their time; by then the other rank has to have been asked to end. (If it is
// asked only after that line, its half second until it says so shows it.)
TEST_F(Nodes, ARankBesideAFailedOneDoesNotWaitForTheStore) {
  const std::string folder = folder_.path() + "/";
  const Arguments program = {"--node-timeout",
                             "10min",
                             "--",
                             "sh",
                             "-c",
                             "trap 'sleep 0.5; echo > " + folder +
                                 "asked; exit 0' TERM; echo ready; "
                                 "while [ ! -e " +
                                 folder + "go ] || [ $RANK != 1 ]; do sleep 0.02; done; exit 3"};
  Running first(node(0, 2, "1,2", program), secret_), second(node(1, 2, "1,2", program), secret_);
  first.await_out("ready");
  second.await_out("ready", 2);
  const pid_t with_store = first.agent();
  kill(with_store, SIGSTOP);
  std::ofstream(folder + "go") << "";
  second.await_err("exited with code 3; stopping the other 1 rank of this node");
  EXPECT_TRUE(std::filesystem::exists(folder + "asked"));
  kill(with_store, SIGCONT);
  EXPECT_EQ(second.wait().code, 3);
  first.wait();
  EXPECT_TRUE(second.nobody_left()) << second.census();
}

TEST_F(Nodes, ASignalToOneEndsAll) {
  const Arguments program = {worker(), "pause"};
  Running first(node(0, 2, "1", program), secret_), second(node(1, 2, "1", program), secret_);
  first.await_out("ready");
  second.await_out("ready");
  second.send(SIGINT);
  EXPECT_EQ(second.wait().code, 130);
  const Ended here = first.wait();
  EXPECT_EQ(here.code, 130);
  EXPECT_THAT(here.err, HasSubstr("was asked to stop by SIGINT"));
}

TEST_F(Nodes, ALostNodeIsNamed) {
  const Arguments program = {worker(), "pause"};
  Running first(node(0, 2, "1", program), secret_), second(node(1, 2, "1", program), secret_);
  first.await_out("ready");
  second.await_out("ready");
  kill(second.agent(), SIGKILL);
  second.wait();
  const Ended here = first.wait();
  EXPECT_EQ(here.code, 4);
  EXPECT_THAT(here.err,
              AllOf(HasSubstr("node 1 ("), HasSubstr(") is lost: "), Not(HasSubstr("the report is on that node"))));
}

// As a virtual machine that is suspended: meanwhile the others went on without it, and its ranks saw them end.
TEST_F(Nodes, AnAgentThatWasStoppedHearsWhyTheJobEndedBeforeItBlamesItsRanks) {
  const std::string gone = folder_.path() + "/gone", pid_file = folder_.path() + "/pid";
  const Arguments program = {
      "sh", "-c",
      "echo $$ > " + pid_file + "$RANK; echo ready; while [ ! -e " + gone + " ]; do sleep 0.02; done; exit 1"};
  Running first(node(0, 2, "1", program), secret_), second(node(1, 2, "1", program), secret_);
  first.await_out("ready");
  second.await_out("ready");
  const pid_t stopped = second.agent();
  kill(stopped, SIGSTOP);
  EXPECT_EQ(first.wait().code, 4);
  std::ofstream(gone) << "";
  const std::string facts = "/proc/" + std::to_string(std::stoi(read_file(pid_file + "1"))) + "/stat";
  const Deadline patience = Deadline::after_seconds(60);
  while (read_file(facts).find(") Z ") == std::string::npos && !patience.expired()) usleep(1000);  // dead, not reaped
  kill(stopped, SIGCONT);
  const Ended there = second.wait();
  EXPECT_EQ(there.code, 4) << there.err;
  EXPECT_THAT(there.err,
              AllOf(ContainsRegex("the job failed: node 1 \\(.*\\) is lost: no heartbeat of its agent arrived"),
                    Not(HasSubstr("the job failed: rank 1"))));
}

TEST_F(Nodes, ACoordinatorThatWasStoppedBlamesNoOtherNode) {
  const Arguments program = {"--node-timeout", "1s", "--", worker(), "pause"};
  Running first(node(0, 2, "1", program), secret_), second(node(1, 2, "1", program), secret_);
  first.await_out("ready");
  second.await_out("ready");
  const pid_t stopped = first.agent();
  kill(stopped, SIGSTOP);
  const Deadline limit = Deadline::after_seconds(4);  // it has to be missed for longer than what it is blamed for
  second.await_err("lost contact with the coordinator");
  while (!second.is_over() && !limit.expired()) usleep(1000);
  kill(stopped, SIGCONT);
  const Ended here = first.wait();
  EXPECT_EQ(here.code, 4) << here.err;
  EXPECT_THAT(here.err, ContainsRegex("the job failed: the agent of node 0 \\(.*\\) was stopped for .* s, longer "
                                      "than the 1 s after which the other nodes count it as lost"));
  EXPECT_EQ(second.wait().code, 4);
}

TEST_F(Nodes, LosingNodeZeroEndsTheOthers) {
  const Arguments program = {worker(), "pause"};
  Running first(node(0, 2, "1", program), secret_), second(node(1, 2, "1", program), secret_);
  first.await_out("ready");
  second.await_out("ready");
  kill(first.agent(), SIGKILL);
  first.wait();
  const Ended there = second.wait();
  EXPECT_EQ(there.code, 4);
  EXPECT_THAT(there.err, HasSubstr("lost the store of node 0 ("));
}

TEST_F(Nodes, AMissingNodeIsNamed) {
  Arguments arguments = node(0, 3, "1", {worker(), "print"});
  arguments.insert(arguments.begin() + 1, {"--connect-timeout", "300ms"});
  arguments.erase(arguments.end() - 4, arguments.end() - 2);  // the longer limit
  const Ended ended = run(arguments, secret_);
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("1, 2"), HasSubstr("node"), HasSubstr("300 ms")));
}

TEST_F(Nodes, AnUnreachableMasterIsNamed) {
  const Ended ended =
      run({"run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port",
           master_port_.text(), "--store-port", store_port_.text(), "--connect-timeout", "300ms", worker(), "print"},
          secret_);
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(store_port_.address()), HasSubstr("is node 0 started"),
                               HasSubstr("127.0.0.1 is each host's own loopback address: if node 0 is on another "
                                         "host, give --master-addr an address of that host")));
}

TEST_F(Nodes, CtrlCWhileWaiting) {
  Running first(node(0, 2, "1", {worker(), "print"}), secret_);
  first.await_err("node 1");
  first.send(SIGINT);
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 130) << ended.err;
  EXPECT_TRUE(first.nobody_left());
}

TEST_F(Nodes, AWrongSecretIsRefused) {
  Running first(node(0, 2, "1", {worker(), "print"}), secret_);
  const Ended there = run(node(1, 2, "1", {worker(), "print"}), {{"TUTTI_SECRET", "another word"}});
  EXPECT_EQ(there.code, 2);
  EXPECT_THAT(there.err, AllOf(HasSubstr("Refused"), HasSubstr("secret")));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().code, 143);
}

TEST_F(Nodes, ContradictionsAreReported) {
  const Arguments program = {worker(), "print"};
  Running first(node(0, 2, "2,1", program), secret_), second(node(1, 2, "2,3", program), secret_);
  EXPECT_EQ(first.wait().code, 2);
  const Ended there = second.wait();
  EXPECT_EQ(there.code, 2);
  EXPECT_THAT(there.err, HasSubstr("node 0 was given -n 2,1, but node 1 -n 2,3"));
}

TEST_F(Nodes, TwoOfOneNumber) {
  const Arguments program = {worker(), "print"};
  Running server(node(0, 3, "1", program), secret_), one(node(1, 3, "1", program), secret_),
      twin(node(1, 3, "1", program), secret_);
  const pid_t one_agent = one.agent(), twin_agent = twin.agent();
  // Whichever of the twins comes second is told; the other still waits for node 2.
  const Deadline patience = Deadline::after_seconds(60);
  while (!one.is_over() && !twin.is_over() && !patience.expired()) usleep(1000);
  Running& told = one.is_over() ? one : twin;
  const Ended ended = told.wait();
  EXPECT_EQ(ended.code, 2);
  const std::string pids[] = {"pid " + std::to_string(one_agent), "pid " + std::to_string(twin_agent)};
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("Mismatch: node 1 ("), HasSubstr(") already takes part"),
                    AnyOf(HasSubstr(pids[0]), HasSubstr(pids[1])), HasSubstr("every node needs its own --node-rank")));
  const Ended first = server.wait();  // at once, and with the reason
  EXPECT_EQ(first.code, 2);
  EXPECT_THAT(first.err, AllOf(ContainsRegex("node 1 \\(.*\\) was rejected: node 1 \\(.*\\) already takes part"),
                               HasSubstr(pids[0]), HasSubstr(pids[1])));
  Running& other = &told == &one ? twin : one;
  EXPECT_EQ(other.wait().code, 2);
}

TEST_F(Nodes, ADuplicateOfARunningNodeIsRejectedAtOnceAndTheJobContinues) {
  // Only by hearing the second again: by patience it would take as long as that may be silent.
  const Arguments program = {"--node-timeout", "10min", worker(), "pause"};
  Running first(node(0, 2, "1", program), secret_), second(node(1, 2, "1", program), secret_);
  first.await_out("ready");
  second.await_out("ready");
  const std::string pid = "pid " + std::to_string(second.agent());
  const Ended twin = run(node(1, 2, "1", program), secret_);
  EXPECT_EQ(twin.code, 2) << twin.err;
  EXPECT_THAT(twin.err, AllOf(HasSubstr("Mismatch: node 1 ("), HasSubstr(pid + ") already takes part")));
  first.await_err("was rejected: node 1 (");
  first.send(SIGTERM);
  first.wait(), second.wait();
}

TEST_F(Nodes, TwoOfNodeZeroOnOneHost) {
  Running first(node(0, 2, "1", {worker(), "print"}), secret_);
  first.await_err("node 1");
  const std::string pid = "pid " + std::to_string(first.agent());
  const Ended twin = run(node(0, 2, "1", {worker(), "print"}), secret_);
  EXPECT_EQ(twin.code, 2);
  EXPECT_THAT(twin.err, AllOf(HasSubstr("Mismatch: node 0 ("), HasSubstr(pid + ") already takes part"),
                              HasSubstr("every node needs its own --node-rank"), Not(HasSubstr("--store-port"))));
  const Ended told = first.wait();
  EXPECT_EQ(told.code, 2);
  EXPECT_THAT(told.err, AllOf(HasSubstr("was rejected: node 0 ("), HasSubstr(pid)));
}

TEST_F(Nodes, DifferentNumbersOfNodesAreReportedToAllNodes) {
  const Arguments program = {worker(), "print"};
  Running first(node(0, 2, "1", program), secret_), second(node(1, 3, "1", program), secret_);
  for (Running* running : {&first, &second}) {
    const Ended ended = running->wait();
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("counts 3 nodes (--nnodes)"), HasSubstr("the coordinator expects 2")));
  }
}

TEST_F(Nodes, AfterAKilledSupervisorNoProcessWaits) {
  Running first(node(0, 2, "1", {worker(), "print"}), secret_);
  ASSERT_GT(first.agent(), 0);
  first.send(SIGKILL);
  first.wait();
  EXPECT_TRUE(first.nobody_left()) << first.census();
}

// A place for logs that cannot be is wrong usage of that node, and ends all of them alike.
TEST_F(Nodes, ANodeThatCannotStartItsRanksEndsAllWithItsCode) {
  Running first(node(0, 2, "1", {worker(), "pause"}), secret_);
  const Ended second = run(node(1, 2, "1", {"--log-dir", "/dev/null/logs", worker(), "pause"}), secret_);
  EXPECT_EQ(second.code, 2) << second.err;
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("could not start its ranks: --log-dir: cannot make the folder /dev/null/logs/"),
                    HasSubstr(": /dev/null is there, and is no folder")));
}

TEST(NodesUsage, IsReportedInASentence) {
  const auto told = [](const Arguments& arguments, const std::string& nodes = "") {
    const Ended ended = run(arguments, {{"TUTTI_SECRET", ""}, {"PET_NNODES", nodes}});
    EXPECT_EQ(ended.code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(told({"run", "--nnodes", "2", "sh"}),
              AllOf(HasSubstr("--nnodes 2 needs --master-addr"), Not(HasSubstr("PET_")),
                    HasSubstr("--rdzv-backend elastic --rdzv-endpoint HOST")));
  EXPECT_THAT(told({"run", "-n", "8,2", "sh"}), HasSubstr("-n 8,2 needs --master-addr"));
  EXPECT_THAT(told({"run", "sh"}, "2"),
              AllOf(HasSubstr("--nnodes 2 needs --master-addr"), HasSubstr("PET_NNODES is '2' in the environment")));
  EXPECT_THAT(told({"run", "sh"}, "1:2"), HasSubstr("--nnodes 1:2 needs --master-addr"));
  EXPECT_THAT(told({"run", "--insecure", "--secret-file", "s", "sh"}),
              HasSubstr("--insecure means no secret, and --secret-file s gives one"));
  EXPECT_THAT(told({"run", "--node-rank", "2", "--master-addr", "127.0.0.1", "sh"}, "2"),
              AllOf(HasSubstr("--node-rank 2 is not one"), HasSubstr("PET_NNODES is '2' in the environment")));
  EXPECT_THAT(told({"run", "--nnodes", "2", "--node-rank", "2", "--master-addr", "127.0.0.1", "sh"}),
              HasSubstr("--node-rank 2 is not one of the 2 nodes of --nnodes"));
  EXPECT_THAT(told({"run", "--node-rank", "1", "sh"}), HasSubstr("--node-rank 1 is not one of 1 node"));
  EXPECT_THAT(told({"run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "sh"}),
              AllOf(HasSubstr("needs a secret"), HasSubstr("--secret-file")));
  EXPECT_THAT(told({"run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--secret-file",
                    "/no/such/file", "sh"}),
              HasSubstr("/no/such/file"));
  EXPECT_THAT(told({"run", "--nnodes", "2", "--iface", "nope0", "sh"}),
              AllOf(HasSubstr("no interface \"nope0\" is up here"), HasSubstr("lo (127.0.0.1)")));
  EXPECT_THAT(told({"run", "--nnodes", "2", "--iface", "203.0.113.0/24", "sh"}),
              HasSubstr("this machine has no address in 203.0.113.0/24"));
  EXPECT_THAT(told({"run", "--nnodes", "2", "--master-addr", "192.0.2.1", "--insecure", "sh"}), HasSubstr("192.0.2.1"));
}

TEST_F(Nodes, AStorePortInUseNamesItsHolder) {
  const auto holder = listen(transport::Address{.host = "127.0.0.1", .port = std::uint16_t(store_port_.number())});
  ASSERT_TRUE(holder.ok());
  const Ended ended = run(node(0, 2, "1", {worker(), "print"}), secret_);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("AddressInUse"), HasSubstr("--store-port")));
}

// Workers get the secret by a descriptor that nobody can change, and none of it in their variables.
TEST(Secret, IsInheritedAndSealed) {
  const Ended ended = run({"run", "-q", "--no-prefix", "python3", "-c",
                           "import os, fcntl\nfd = int(os.environ['TUTTI_SECRET_FD'])\nprint(len(os.pread(fd, 100, "
                           "0)), fcntl.fcntl(fd, 1034), os.environ.get('TUTTI_SECRET'))"},
                          {{"TUTTI_SECRET", "abc"}});
  EXPECT_EQ(ended.out, "32 15 None\n");
}

}  // namespace
}  // namespace tutti::testing
