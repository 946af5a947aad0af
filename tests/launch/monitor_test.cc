// What the agent sees of its ranks: where they were when one failed, that one is stopped, that they hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/harness/reserved_port.h"
#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<pid_t> children_of(pid_t parent) {
  const std::string text =
      read_file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  std::vector<pid_t> pids;
  std::istringstream words(text);
  for (pid_t pid; words >> pid;) pids.push_back(pid);
  return pids;
}

TEST(Watched, ACrashIsTracedToItsLine) {
  const Folder folder;
  const Ended ended =
      run({"run", "-n", "3", "--report", folder.path() + "/report.json", TUTTI_TEST_WATCHED, "crash", "1"});
  EXPECT_EQ(ended.code, 128 + SIGSEGV);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("the job failed: rank 1 (pid "), HasSubstr("SIGSEGV"),
                    HasSubstr("at its end: step 104, in no call for "),
                    HasSubstr("its last call was all_reduce #5 (f32[1000], max) on group world"),
                    HasSubstr("its stack, the innermost call first:"),
                    ContainsRegex("  crash_in_a_function\\(int volatile\\*\\) at .*tests/launch/watched.cc:[0-9]+\n"),
                    ContainsRegex("  main at .*watched.cc:"), ContainsRegex("ranks? 0(, 2)? then: step 104, "),
                    HasSubstr("also ended: ranks 0, 2 were running")));
  const auto json = nlohmann::json::parse(read_file(folder.path() + "/report.json"));
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["signal"], "SIGSEGV");
  EXPECT_EQ(json["step"], 104);
  EXPECT_THAT(json["backtrace"][0].get<std::string>(), HasSubstr("crash_in_a_function"));
  EXPECT_EQ(json["ranks"][0]["role"], "also_ended");
  EXPECT_EQ(json["ranks"][1]["role"], "culprit");
}

TEST(Watched, ARankThatStillWritesItsCoreIsTheCauseNotTheFirstToExit) {
  const Folder folder;
  const Ended ended = run({"run", "-n", "2", TUTTI_TEST_WATCHED, "core", "1", folder.path() + "/dying"});
  EXPECT_EQ(ended.code, 128 + SIGSEGV);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the job failed: rank 1 (pid "), HasSubstr("crash_in_a_function"),
                               HasSubstr("failed as well, because of it or by itself: rank 0 exited with code 3")));
}

TEST(Watched, TimesOfADeadRankEndWithIt) {
  const Ended ended = run({"run", "-n", "2", "--grace", "60s", TUTTI_TEST_WATCHED, "killed", "1"});
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("at its end: step 104, in no call for "),
                               Not(ContainsRegex("at its end: step 104, in no call for [2-9][.0-9]* s"))));
}

TEST(Watched, AnExceptionIsReportedWithItsMessage) {
  const Folder folder;
  const Ended ended =
      run({"run", "-n", "2", "--log-dir", folder.path(), "--job-id", "j", TUTTI_TEST_WATCHED, "throw", "0"});
  EXPECT_EQ(ended.code, 128 + SIGABRT);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 0 (pid "), HasSubstr("SIGABRT"),
                               HasSubstr("its message: the loss is NaN"), ContainsRegex("  main at .*watched.cc:")));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder.path() + "/j/attempt_0/report.json"))["message"], "the loss is NaN");
}

TEST(Watched, AHangIsReportedWithTheRankThatTheOthersWaitFor) {
  const Folder folder;
  const Ended ended = run({"run", "-n", "3", "--hang-timeout", "2s", TUTTI_TEST_WATCHED, "loop", "2"},
                          {{"TUTTI_FLIGHT_DIR", folder.path()}});
  EXPECT_EQ(ended.code, 124);
  EXPECT_THAT(
      ended.err,
      AllOf(
          HasSubstr("no rank has made progress for "), HasSubstr("; after 2 s (set by --hang-timeout) the job ends"),
          HasSubstr(
              "ranks 0, 1 wait in all_reduce #6 (f32[1000], sum) on group world for rank 2: step 104, in no call for "),
          HasSubstr("collecting the stacks of all ranks"),
          HasSubstr("[tutti] the job failed: no rank has made progress"),
          ContainsRegex("loop_in_a_function\\(\\) at .*watched.cc:"),
          ContainsRegex("ranks? 0(, 1)? then: step 104, for "), HasSubstr("also ended: ranks 0, 1")));
  const auto time_before = [&](const std::string& end) {  // in the sentence that goes on with `end`
    const auto from = ended.err.rfind("has made progress for ", ended.err.find(end));
    return ended.err.substr(from, ended.err.find(" s", from) - from);
  };
  EXPECT_EQ(time_before("(set by --hang-timeout): "), time_before("collecting the stacks"));
  const std::string& flight = folder.path();
  EXPECT_THAT(read_file(flight + "/stacks-rank2.txt"), HasSubstr("loop_in_a_function"));
  EXPECT_THAT(read_file(flight + "/stacks-rank0.txt"), HasSubstr("What its threads wait for in the kernel:"));
  EXPECT_THAT(read_file(flight + "/flight-rank0.json"), HasSubstr("SIGUSR2"));
}

// Its name can be guessed, so anybody may have made it, and lead what the agent writes there to a file of its user.
TEST(Watched, StacksAreNotWrittenToAFolderOfOthers) {
  const Folder folder;
  const std::string flight = folder.path() + "/tutti-flight-" + std::to_string(geteuid()) + "-j";
  const std::string victim = folder.path() + "/victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_directory(flight);
  std::filesystem::permissions(flight, std::filesystem::perms::all);
  std::filesystem::create_symlink(victim, flight + "/stacks-rank0.txt");
  const Ended ended = run({"run", "-n", "1", "--job-id", "j", "--hang-timeout", "1s", TUTTI_TEST_WATCHED, "loop", "0"},
                          {{"TMPDIR", folder.path()}});
  EXPECT_EQ(ended.code, 124);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("could not write the stacks of the ranks: "),
                               HasSubstr(flight + " is not a folder of this user alone"),
                               ContainsRegex("loop_in_a_function\\(\\) at ")));
  EXPECT_EQ(read_file(victim), "precious");
}

TEST(Watched, AHangIsBlamedOnTheNodeThatCausesIt) {
  const Folder folder;
  const test::ReservedPort port;
  const auto node = [&](const char* number) {
    return std::vector<std::string>{"run",
                                    "--nnodes",
                                    "2",
                                    "--node-rank",
                                    number,
                                    "--master-addr",
                                    "127.0.0.1",
                                    "--store-port",
                                    port.text(),
                                    "--insecure",
                                    "--hang-timeout",
                                    "2s",
                                    "-n",
                                    "1",
                                    TUTTI_TEST_WATCHED,
                                    "loop",
                                    "1"};
  };
  Running first(node("0")), second(node("1"));
  const Ended waited = first.wait(), looped = second.wait();
  EXPECT_EQ(waited.code, 124);
  EXPECT_EQ(looped.code, 124);
  EXPECT_THAT(looped.err, AllOf(HasSubstr("the job failed: no rank of node 1 ("), HasSubstr("loop_in_a_function")));
  EXPECT_THAT(waited.err,
              AllOf(HasSubstr("rank 0 waits in all_reduce #6"), HasSubstr("for ranks of other nodes"),
                    HasSubstr("the job failed: no rank of node 1 ("), HasSubstr("(the report is on that node)"),
                    HasSubstr("[tutti] the report of that node:\n[tutti] the job failed: no rank of node 1 ("),
                    HasSubstr("loop_in_a_function")));
}

TEST(Watched, AStoppedRankIsReportedAtOnceAndWhenItContinues) {
  Running running({"run", "-n", "2", TUTTI_TEST_WATCHED, "run"});
  running.await_out("five steps", 2);
  const std::vector<pid_t> workers = children_of(running.agent());
  ASSERT_EQ(workers.size(), 2u);
  const std::string pid = std::to_string(workers[1]);
  ::kill(workers[1], SIGSTOP);
  running.await_err("rank 1 (pid " + pid +
                    ") is stopped (SIGSTOP or a debugger): the others will wait for it; kill -CONT " + pid);
  ::kill(workers[1], SIGCONT);
  running.await_err("rank 1 (pid " + pid + ") continues");
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 128 + SIGTERM);
}

TEST(Watched, HangsNotWhileItGetsOn) {
  Running running({"run", "-n", "2", "--hang-timeout", "3s", TUTTI_TEST_WATCHED, "run"});
  running.await_out("five steps", 2);
  std::this_thread::sleep_for(std::chrono::seconds(4));  // longer than the limit: that nothing happens is no event
  running.send(SIGTERM);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_THAT(ended.err, Not(HasSubstr("has made progress for")));
}

TEST(Watched, ProgramsThatAreNoRanksNeverHang) {
  const Ended ended = run({"run", "-n", "1", "--hang-timeout", "200ms", "--timeout", "1500ms", worker(), "pause"});
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("the time limit of 1.5 s has passed"), Not(HasSubstr("has made progress for"))));
}

// Sockets of the jobs lie in a folder of the test's own.
std::map<std::string, std::string> in(const Folder& folder) {
  return {{"XDG_RUNTIME_DIR", ""}, {"TMPDIR", folder.path()}};
}

std::string socket_folder(const Folder& folder) { return folder.path() + "/tutti-" + std::to_string(::geteuid()); }

TEST(Status, OfARunningJob) {
  const Folder folder;
  if (std::filesystem::exists("/run/user/" + std::to_string(::geteuid())))
    GTEST_SKIP() << "needs no /run/user of this user";
  Running running({"run", "-n", "2", "--job-id", "watched-job", TUTTI_TEST_WATCHED, "run"}, in(folder));
  running.await_out("five steps", 2);
  EXPECT_EQ(std::filesystem::status(socket_folder(folder)).permissions(), std::filesystem::perms::owner_all);
  const std::string supervisor = std::to_string(running.pid()), agent = std::to_string(running.agent());
  for (const std::vector<std::string>& job :
       {std::vector<std::string>{"watched-job"}, std::vector<std::string>{}, {supervisor}, {agent}}) {
    std::vector<std::string> arguments = {"status"};
    arguments.insert(arguments.end(), job.begin(), job.end());
    const Ended status = run(arguments, in(folder));
    EXPECT_EQ(status.code, 0) << status.err;
    EXPECT_THAT(status.out, AllOf(HasSubstr("job watched-job: 2 ranks on 1 node, up "), HasSubstr("0 restarts\n"),
                                  HasSubstr("RANK  HOST"), ContainsRegex("\n   0 +[^ ]+ +[0-9]+ +runs +[0-9]+"),
                                  ContainsRegex("\n   1 +[^ ]+ +[0-9]+ +runs")));
  }
  const auto json = nlohmann::json::parse(run({"status", "--json", "watched-job"}, in(folder)).out);
  EXPECT_EQ(json["nodes"][0]["ranks"].size(), 2u);
  EXPECT_GE(json["nodes"][0]["ranks"][1]["step"], 104);
  const Ended top = run({"top", "-n", "2", "--interval", "100ms", "watched-job"}, in(folder));
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_NE(top.out.find("job watched-job"), top.out.rfind("job watched-job"));
  const Ended none = run({"status", "another"}, in(folder));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, AllOf(HasSubstr("no job of the name another runs on this host"),
                              HasSubstr("looked in " + socket_folder(folder) + ": jobs of other users are not there")));
  EXPECT_THAT(run({"top", "-n", "0"}, in(folder)).err,
              HasSubstr("--count needs a number from 1 to 1000000000, not '0'"));
  kill(running.agent(), SIGSTOP);
  EXPECT_THAT(run({"top", "-d", "0", "watched-job"}, in(folder)).err,
              HasSubstr("--interval 0 would keep the agent busy"));
  for (const bool named : {true, false}) {
    const Ended silent = named ? run({"status", "watched-job"}, in(folder)) : run({"status"}, in(folder));
    EXPECT_EQ(silent.code, 1);
    EXPECT_THAT(silent.err, AllOf(HasSubstr("job watched-job, agent " + std::to_string(running.agent()) + ": "),
                                  HasSubstr("does not answer after 5"),
                                  HasSubstr("is it stopped? kill -CONT " + std::to_string(running.agent()))));
  }
  kill(running.agent(), SIGCONT);
  running.send(SIGTERM);
  running.wait();
  EXPECT_TRUE(std::filesystem::is_empty(socket_folder(folder)));
  EXPECT_THAT(run({"status"}, in(folder)).err, HasSubstr("no job of yours runs on this host"));
}

TEST(Status, OfAllNodes) {
  const Folder folder;
  if (std::filesystem::exists("/run/user/" + std::to_string(::geteuid())))
    GTEST_SKIP() << "needs no /run/user of this user";
  const test::ReservedPort port;
  const auto node = [&](const char* number) {
    return std::vector<std::string>{
        "run",       "--nnodes",   "2",  "--node-rank", number,     "--master-addr", "127.0.0.1",        "--store-port",
        port.text(), "--insecure", "-n", "1",           "--job-id", "two",           TUTTI_TEST_WATCHED, "run"};
  };
  Running first(node("0"), in(folder)), second(node("1"), in(folder));
  first.await_out("five steps");
  second.await_out("five steps");
  std::string out;
  const auto told = [&](const char* rank) { return out.find(rank) != std::string::npos; };
  for (int tries = 0; tries < 200 && !(told("\n   0 ") && told("\n   1 ")); ++tries)
    out = run({"status", "two"}, in(folder)).out;
  EXPECT_THAT(out, AllOf(HasSubstr("job two: 2 ranks on 2 nodes"), ContainsRegex("\n   0 +[^ ]+ +[0-9]+ +runs"),
                         ContainsRegex("\n   1 +[^ ]+ +[0-9]+ +runs")));
  first.send(SIGTERM);
  first.wait();
  second.wait();
}

TEST(Watched, AWrongLimitIsRefused) {
  const Ended ended = run({"run", "--hang-timeout", "soon", worker(), "pause"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--hang-timeout"));
}

}  // namespace
}  // namespace tutti::testing
