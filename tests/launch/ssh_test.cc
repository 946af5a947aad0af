// `tutti run --hosts` without a network: this host by a shell, others by programs that stand for ssh.
// tests/schedulers/ssh_test.sh has a real sshd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/launch/running.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A program in place of ssh, which gets HOST and a command for a shell there.
std::string script(const Folder& folder, const std::string& text) {
  const std::string path = folder.path() + "/rsh";
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

TEST(OnHosts, ThisHostNeedsNoSsh) {
  const Ended ended =
      run({"run", "-q", "--hosts", "localhost:2", "-x", "COLOUR=blue", worker(), "env", "RANK", "COLOUR"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] RANK=0\n[0] COLOUR=blue\n"), HasSubstr("[1] RANK=1\n")));
}

TEST(OnHosts, TwoNodesByAShellThatIsGiven) {
  const Folder folder;
  // Two hosts that are this one; what a login shell says first is nobody's line.
  const std::string rsh = script(folder, "echo \"Welcome to $1!\"; exec sh -c \"$2\"");
  const Ended ended = run({"run", "--ssh", rsh, "-H", "a:1,b:2", worker(), "env", "RANK", "GROUP_RANK", "WORLD_SIZE"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("[2] RANK=2\n[2] GROUP_RANK=1\n[2] WORLD_SIZE=3\n"), Not(HasSubstr("Welcome"))));
  EXPECT_THAT(ended.err, HasSubstr("ranks 1-2  on "));
}

// The address that ssh reports is in another network.
TEST(OnHosts, TheInterfaceThatIsGivenHasTheAddressOfTheJob) {
  const Folder folder;
  const std::string rsh = script(folder, "export SSH_CONNECTION='203.0.113.9 1 127.0.0.1 22'; exec sh -c \"$2\"");
  const Ended ended = run({"run", "-q", "--ssh", rsh, "-H", "a:1,b:1", "--iface", "lo", "--connect-timeout", "20s",
                           worker(), "env", "MASTER_ADDR"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] MASTER_ADDR=127.0.0.1\n"), HasSubstr("[1] MASTER_ADDR=127.0.0.1\n")));
}

// What this end says, what comes from ssh itself, and what the hosts say before they have met: all are objects.
TEST(OnHosts, AllLinesAreJsonOnRequest) {
  const Folder folder;
  const std::string rsh = script(folder,
                                 "echo \"a word of ssh\" >&2; sh -c \"$2\" | sed -u /TUTTI-NODE-END/d; "
                                 "echo bye >&2; exit 255");
  const Ended ended = run({"run", "--log-format", "json", "--ssh", rsh, "-H", "a:1", "sh", "-c", "echo ready"});
  std::map<std::string, std::string> from;  // line -> who said it
  for (const std::string& line : split(ended.out + ended.err, '\n')) {
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << line;
    from[json["line"]] = json.contains("rank") ? "rank" : json["from"];
    EXPECT_EQ(json["host"] == "a", json["line"] == "bye") << line;
  }
  EXPECT_EQ(from["ready"], "rank") << ended.out << ended.err;
  EXPECT_EQ(from["bye"], "ssh");
  EXPECT_EQ(from["the connection to a is lost; stopping the job on the other hosts"], "tutti") << ended.err;

  const Ended refused = run({"run", "--log-format", "json", "--ssh", "false", "-H", "a", "sh"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr(R"({"time":")"), HasSubstr(R"("from":"tutti","level":"error")"),
                                 HasSubstr("a did not start tutti")));
}

TEST(OnHosts, RanksReadNothing) {
  const Ended ended = run({"run", "-q", "--hosts", "localhost:2", worker(), "stdin"}, {}, "hello\n");
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] read end of file\n"), HasSubstr("[1] read end of file\n")));
}

TEST(OnHosts, ARanksCodeIsTheJobs) {
  EXPECT_EQ(run({"run", "-q", "--hosts", "localhost:2", "sh", "-c", "exit $((RANK * 7))"}).code, 7);
}

// 255 is what ssh says of itself, and what exit(-1) is.
TEST(OnHosts, ARanksCodeIsTheJobsEvenIfItLooksLikeOneOfSsh) {
  const Folder folder;
  const std::string rsh = script(folder, "exec sh -c \"$2\"");
  const Ended ended =
      run({"run", "-q", "--ssh", rsh, "-H", "a:1,b:1", "sh", "-c", "[ $RANK = 0 ] || exit 255; sleep 60"});
  EXPECT_EQ(ended.code, 255);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 1 "), Not(HasSubstr("connection to")), Not(HasSubstr("SIGTERM"))));
}

TEST(OnHosts, ASessionThatBreaksOffIsReported) {
  const auto broken_by = [](const std::string& how) {
    const Folder folder;
    const std::string began = folder.path() + "/began";
    const std::string rsh =
        script(folder, "[ $1 = a ] && exec sh -c \"$2\"; exec 3<&0; sh -c \"$2\" <&3 & until [ -e " + began +
                           " ]; do sleep 0.02; done; " + how);
    return run({"run", "-q", "--ssh", rsh, "-H", "a:1,b:1", "sh", "-c",
                "[ $RANK = 0 ] || touch " + began + "; exec sleep 60"});
  };
  const Ended lost = broken_by("exit 255");
  EXPECT_EQ(lost.code, 4) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("the connection to b is lost; stopping the job on the other hosts"));
  const Ended killed = broken_by("kill -9 $$");
  EXPECT_EQ(killed.code, 137) << killed.err;
  EXPECT_THAT(killed.err,
              HasSubstr("tutti on b ended (code 137) and has not reported the result of its ranks; stopping the job"));
}

// The others cannot know, and would wait for it for five minutes.
TEST(OnHosts, AHostThatCannotStartTheProgramEndsTheJobAtOnce) {
  const Folder folder;
  const std::string rsh = script(folder, "[ $1 = b ] && export PATH=/usr/bin:/bin; exec sh -c \"$2\"");
  const std::string only_here = folder.path() + "/here";
  std::filesystem::create_directory(only_here);
  std::filesystem::create_symlink(worker(), only_here + "/my-program");
  const Ended ended = run({"run", "-q", "--ssh", rsh, "-H", "a:1,b:1", "my-program", "print"},
                          {{"PATH", only_here + ":/usr/bin:/bin"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("b: tutti run: no program 'my-program' in PATH"),
                    HasSubstr("[tutti] b ended with code 2 before the job started: no program 'my-program' in "
                              "PATH; stopping the other hosts")));
}

TEST(OnHosts, ASignalReachesTheRanks) {
  Running job({"run", "-q", "--hosts", "localhost:2", worker(), "trap", "5"});
  job.await_out("ready", 2);
  job.send(SIGTERM);
  const Ended ended = job.wait();
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] saved after 15"), HasSubstr("[1] saved after 15")));
  EXPECT_EQ(ended.code, 5);
  EXPECT_TRUE(job.nobody_left()) << job.census();
}

TEST(OnHosts, AReaderThatWentAwayEndsTheJobAsInAnyPipeline) {
  Running job({"run", "-q", "--hosts", "localhost:2", "sh", "-c", "while echo x; do sleep 0.01; done"});
  job.await_out("[1] x");
  job.close_output();
  const Ended ended = job.wait();
  EXPECT_EQ(ended.code, 141);
  EXPECT_THAT(ended.err, HasSubstr("the reader of our standard output is gone: ending the job"));
  EXPECT_TRUE(job.nobody_left()) << job.census();
}

// ssh itself, or a script in its place, may leave somebody behind who holds its output open.
TEST(OnHosts, AHelperInTheBackgroundIsNotWaitedFor) {
  const Folder folder;
  const std::string rsh = script(folder, "sleep 1000 & exec sh -c \"$2\"");
  const Ended ended = run({"run", "-q", "--ssh", rsh, "-H", "a:1", worker(), "print"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("[0] out 0\n[0] last line without an end\n"));
}

TEST(OnHosts, AThirdSignalEndsTheWaitForAnUnresponsiveHost) {
  const Folder folder;
  const std::string rsh =
      script(folder, R"(echo 'TUTTI-NODE {"version":")" TUTTI_VERSION R"(","host":"a","address":"",)"
                     R"("from":"","master_port":1,"store_port":2}'; read line; )"
                     R"(trap '' HUP INT TERM; echo "got it" >&2; sleep 1000)");
  Running job({"run", "-q", "--ssh", rsh, "-H", "a", worker(), "print"});
  job.await_err("got it");
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) job.send(signal);
  const Ended ended = job.wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_THAT(ended.err, HasSubstr("a third SIGTERM: not waiting for the hosts any longer"));
  EXPECT_TRUE(job.nobody_left()) << job.census();
}

TEST(OnHosts, AHostThatDoesNotReadItsInstructionsIsNamed) {
  const Folder folder;
  const std::string rsh =
      script(folder, R"(echo 'TUTTI-NODE {"version":")" TUTTI_VERSION R"(","host":"a","address":"",)"
                     R"("from":"","master_port":1,"store_port":2}'; sleep 1000)");
  const Ended ended = run(
      {"run", "-q", "--connect-timeout", "1s", "--ssh", rsh, "-H", "a", worker(), "print", std::string(100000, 'x')});
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("a does not read its instructions after "), HasSubstr("is it stopped")));
}

TEST(OnHosts, AHostThatFailsOrIsOldIsNamed) {
  const Folder folder;
  const Ended refused =
      run({"run", "--ssh", script(folder, "echo 'no route' >&2; exit 255"), "-H", "a,b", worker(), "print"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr(" did not start tutti (exit code 255): no route"),
                                 HasSubstr("without a prompt: try ssh -o BatchMode=yes ")));
  const Ended missing =
      run({"run", "--ssh", script(folder, "echo 'sh: tutti: not found' >&2; exit 127"), "-H", "a", worker(), "print"});
  EXPECT_THAT(missing.err, AllOf(HasSubstr("a did not start tutti (exit code 127): sh: tutti: not found"),
                                 HasSubstr("install tutti on a as ")));
  const std::string words = "tutti: error while loading shared libraries: libspdlog.so.1.10: cannot open shared object";
  const Ended linker =
      run({"run", "--ssh", script(folder, "echo '" + words + "' >&2; exit 127"), "-H", "a", worker(), "print"});
  EXPECT_THAT(linker.err, HasSubstr("tutti on a lacks the library libspdlog.so.1.10: install the run-time packages"));
  const std::string old =
      R"(echo 'TUTTI-NODE {"version":"0.0.1","host":"a","address":"","from":"","master_port":1,"store_port":2}'; sleep 60)";
  const Ended version = run({"run", "--ssh", script(folder, old), "-H", "a", worker(), "print"});
  EXPECT_EQ(version.code, 2);
  EXPECT_THAT(version.err, HasSubstr("a has tutti 0.0.1, this host "));
  const Ended silent = run(
      {"run", "--connect-timeout", "200ms", "--ssh", script(folder, "exec sleep 60"), "-H", "a,b", worker(), "print"});
  EXPECT_EQ(silent.code, 4);
  EXPECT_THAT(silent.err, AllOf(HasSubstr("no answer from a, b"), HasSubstr("does `ssh a true` return?")));
}

TEST(OnHosts, WhatCannotReachTheHostsIsNamed) {
  const Ended missing = run({"run", "--ssh", "/nope -p 22", "--hosts", "localhost:2", worker(), "print"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("tutti run: --ssh /nope -p 22: the program '/nope' does not exist"));
  const Ended ssh = run({"run", "--hosts", "a", "sh"}, {{"PATH", "/nowhere"}});
  EXPECT_EQ(ssh.code, 2);
  EXPECT_THAT(ssh.err, AllOf(HasSubstr("no program 'ssh' in PATH"), HasSubstr("install an ssh client")));
}

TEST(OnHosts, ASignalBeforeTheHostsHaveAnsweredEndsAsASignalDoes) {
  const Folder folder;
  const Ended ended =
      run({"run", "--ssh", script(folder, "kill -INT $PPID; exec sleep 60"), "-H", "a", worker(), "print"});
  EXPECT_EQ(ended.code, 130);
  EXPECT_THAT(ended.err, HasSubstr("SIGINT arrived before the job started"));
}

TEST(OnHosts, AFolderThatIsMissingOverThereIsNamed) {
  const Ended ended = run({"node"}, {},
                          R"({"arguments":["run","true"],"folder":"/no/such","variables":{}})"
                          "\n");
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("has no folder /no/such: No such file or directory"));
  EXPECT_THAT(run({"node"}, {}, "{}\n").err, HasSubstr("the instructions for this node cannot be parsed"));
  EXPECT_THAT(run({"node"}).err, HasSubstr("tutti node is started by tutti run --hosts, not by hand"));
  EXPECT_THAT(run({"node", "x"}).err, HasSubstr("it takes no arguments"));
}

TEST(OnHosts, ContradictionsAreReported) {
  const auto told = [](std::vector<std::string> options) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {worker(), "print"});
    const Ended ended = run(options);
    EXPECT_EQ(ended.code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(told({"--hosts", "a:2", "-n", "4"}),
              HasSubstr("--hosts gives the number of ranks of each host, and -n gives 4"));
  EXPECT_THAT(told({"--hosts", "a", "--nnodes", "2"}),
              HasSubstr("--hosts names the nodes, and --nnodes is given as well"));
  EXPECT_THAT(told({"--hosts", "a", "--hostfile", "b"}), HasSubstr("--hosts and --hostfile are both given"));
  EXPECT_THAT(told({"--hostfile", "/no/such"}), HasSubstr("/no/such"));
  EXPECT_THAT(
      told({"--hosts", "localhost", "--secret-file", "/no/such"}),
      HasSubstr("tutti run: cannot read the secret file /no/such: No such file or directory\nhint: make one: "));
  EXPECT_THAT(told({"--ssh", "rsh"}), HasSubstr("--ssh is for hosts that are started over ssh"));
  EXPECT_THAT(told({"--hosts", "localhost", "-x", "NO_SUCH_VARIABLE"}),
              HasSubstr("-x NO_SUCH_VARIABLE: there is no such variable here"));
  EXPECT_THAT(told({"--hosts", "localhost", "-x", "=1"}), HasSubstr("-x needs NAME or NAME=VALUE, not '=1'"));
}

}  // namespace
}  // namespace tutti::testing
