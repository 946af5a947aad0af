// `tutti run` starts programs: arguments, standard input, ports, limits of the shell it was started from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "tests/harness/reserved_port.h"
#include "tests/launch/running.h"
#include "tests/launch/write_script.h"
#include "tutti/base/sanitizers.h"
#include "tutti/transport/socket.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Run, MasterPortIsFreeForTheProgram) {
  const Ended ended = run({"run", "-q", "python3", "-c",
                           "import os, socket; s = socket.socket(); s.bind((os.environ['MASTER_ADDR'], "
                           "int(os.environ['MASTER_PORT']))); print('bound')"});
  EXPECT_THAT(ended.out, HasSubstr("bound"));
}

TEST(Run, EverythingAfterTheProgramIsTheProgrammes) {
  const std::string expected = "argument --help\nargument -n\nargument 3\nargument --\nargument -h\n";
  EXPECT_EQ(run({"run", "-q", "--no-prefix", worker(), "arguments", "--help", "-n", "3", "--", "-h"}).out, expected);
  EXPECT_EQ(run({"run", "-q", "--no-prefix", "--", worker(), "arguments", "--help", "-n", "3", "--", "-h"}).out,
            expected);
}

TEST(Run, FindsProgramsThroughPath) {
  const Folder folder;
  write_script(folder.path() + "/my-script", "#!/bin/sh\necho from the script $1\n");
  EXPECT_EQ(run({"run", "-q", "my-script", "x"}, {{"PATH", folder.path() + ":/usr/bin:/bin"}}).out,
            "[0] from the script x\n");
}

TEST(Run, RankZeroReadsStandardInput) {
  const Ended ended = run({"run", "-n", "2", "-q", worker(), "stdin"}, {}, "hello\n");
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] read hello\n"), HasSubstr("[1] read end of file\n")));
}

TEST(Run, TheRankThatReadsStandardInputIsChosen) {
  const Ended second = run({"run", "-n", "2", "-q", "--stdin", "1", worker(), "stdin"}, {}, "hello\n");
  EXPECT_THAT(second.out, AllOf(HasSubstr("[0] read end of file\n"), HasSubstr("[1] read hello\n")));
  const Ended none = run({"run", "-n", "2", "-q", "--stdin", "none", worker(), "stdin"}, {}, "hello\n");
  EXPECT_THAT(none.out, AllOf(HasSubstr("[0] read end of file\n"), HasSubstr("[1] read end of file\n")));
  const Ended all = run({"run", "--stdin", "all", worker(), "stdin"});
  EXPECT_EQ(all.code, 2);
  EXPECT_THAT(all.err, AllOf(HasSubstr("--stdin needs the number of a rank, or none, not 'all'"),
                             HasSubstr("one rank reads it, and can broadcast it to the others")));
  const Ended missing = run({"run", "-n", "2", "--stdin", "2", worker(), "stdin"});
  EXPECT_THAT(missing.err, HasSubstr("--stdin names rank 2, but the job has 2 ranks"));
  const Ended remote = run({"run", "--hosts", "localhost", "--stdin", "0", worker(), "stdin"});
  EXPECT_EQ(remote.code, 2);
  EXPECT_THAT(remote.err, HasSubstr("--stdin 0: over ssh all ranks read /dev/null"));
}

// `tutti run ... &`: what is typed belongs to the shell. In the foreground a rank reads the terminal.
TEST(Run, ARankDoesNotReadTheTerminalOfAnother) {
  for (const bool background : {true, false}) {
    const std::string command = std::string(TUTTI_TEST_COMMAND) + " run -q " + worker() + " stdin";
    const std::string script = background ? "set -m; " + command + " & wait" : command;
    int terminal = -1;
    const pid_t shell = forkpty(&terminal, nullptr, nullptr, nullptr);
    ASSERT_GE(shell, 0);
    if (shell == 0) {
      execl("/bin/bash", "bash", "-c", script.c_str(), nullptr);
      _exit(126);
    }
    ASSERT_EQ(write(terminal, "typed\n", 6), 6);
    std::string seen;
    char bite[4096];
    for (ssize_t count; (count = read(terminal, bite, sizeof bite)) > 0;) seen.append(bite, std::size_t(count));
    waitpid(shell, nullptr, 0);
    close(terminal);
    EXPECT_THAT(seen, HasSubstr(background ? "read end of file" : "read typed"));
  }
}

TEST(Run, RanksMayEndAtDifferentTimes) {
  const Folder folder;
  EXPECT_EQ(run({"run", "-n", "2", worker(), "early", folder.path()}).code, 0);
}

#if !TUTTI_TSAN  // which has files of its own
// Memory that processes share is a file for it as well.
TEST(Run, WithoutRoomForAnyFileASentenceSaysWhy) {
  const auto limited = [](const std::string& limit, const std::string& program) {
    return run({"run", "-q", "--no-prefix", "sh", "-c",
                "ulimit -f " + limit + "; " + TUTTI_TEST_COMMAND + " run -q -n 2 " + program + "; echo code $?"});
  };
  const Ended none = limited("0", worker() + " env RANK");
  EXPECT_EQ(none.out, "code 1\n");
  EXPECT_THAT(none.err, AllOf(HasSubstr("File too large"), HasSubstr("ulimit -f"), Not(HasSubstr("SIGXFSZ"))));
  const Ended little = limited("1", std::string(TUTTI_TEST_WORLD) + " once");
  EXPECT_THAT(little.err, AllOf(HasSubstr("Limit: rank 0: cannot grow the shared heap by "),
                                HasSubstr("File too large"), HasSubstr("limit of file sizes: ulimit -f unlimited")));
}
#endif

std::string python(const std::string& before) {
  return "import os, signal, sys; " + before + "; os.execv(sys.argv[1], sys.argv[1:])";
}

// Started by something that closed descriptors, ignored the end of children, or left few descriptors.
TEST(Run, StrangeBeginnings) {
  const Folder folder;
  const std::string logs = folder.path();
  for (const std::string before : {"os.closerange(0, 3)", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"}) {
    const Ended ended = run({"run", "-q", "--no-prefix", "python3", "-c", python(before), TUTTI_TEST_COMMAND, "run",
                             "-n", "2", "--job-id", "j", "--log-dir", logs, worker(), "print"});
    EXPECT_EQ(ended.code, 0) << before << ended.err;
    EXPECT_EQ(read_file(logs + "/j/attempt_0/rank_1/stdout.log"), "out 1\nlast line without an end") << before;
    std::filesystem::remove_all(logs + "/j");
  }
#if !TUTTI_ASAN && !TUTTI_TSAN  // they need stack and descriptors themselves
  const Ended small =
      run({"run", "-q", "--no-prefix", "sh", "-c",
           "ulimit -s 64; exec " + std::string(TUTTI_TEST_COMMAND) + " run -n 2 " + TUTTI_TEST_WORLD + " once"});
  EXPECT_EQ(small.code, 0) << small.err;
  for (const std::string limit : {"8", "16", "38"}) {
    const Ended none = run(
        {"run", "-q", "--no-prefix", "sh", "-c",
         "ulimit -n 38; ulimit -n " + limit + "; exec " + TUTTI_TEST_COMMAND + " run -n 20 " + worker() + " env RANK"});
    EXPECT_EQ(none.code, 1) << none.err;
    EXPECT_THAT(none.err, AllOf(HasSubstr("Limit: a process may have " + limit +
                                          " open files here, and to start 20 ranks takes at least 115"),
                                HasSubstr("ulimit -n"), Not(HasSubstr("Usage"))));
  }
#endif
  const Ended few = run({"run", "-q", "--no-prefix", "python3", "-c",
                         python("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, "
                                "resource.getrlimit(resource.RLIMIT_NOFILE)[1]))"),
                         TUTTI_TEST_COMMAND, "run", "-n", "20", worker(), "env", "RANK"});
  EXPECT_EQ(few.code, 0) << few.err;
  EXPECT_THAT(few.out, HasSubstr("[19] RANK=19"));
}

TEST(Run, UserSignalsReachTheRanksAlone) {
  Running running({"run", "-n", "2", "python3", "-c",
                   "import signal, subprocess, sys\nsignal.signal(signal.SIGUSR1, lambda *a: (print('got it', "
                   "helper.poll()), helper.kill(), sys.exit(0)))\n"
                   "helper = subprocess.Popen(['sleep', '600'])\nprint('ready')\nwhile True: signal.pause()"});
  running.await_out("ready", 2);
  running.send(SIGUSR1);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] got it None"), HasSubstr("[1] got it None")));
}

TEST(Run, TheMasterMayHaveAName) {
  EXPECT_EQ(run({"run", "-q", "--master-addr", "localhost", worker(), "env", "MASTER_ADDR"}).out,
            "[0] MASTER_ADDR=localhost\n");
}

TEST(Run, TheRanksGetTheNetworkOfTheJob) {
  EXPECT_EQ(run({"run", "-q", "--iface", "lo", worker(), "env", "TUTTI_IFACE"}).out, "[0] TUTTI_IFACE=lo\n");
}

TEST(Run, TheStorePortIsTheOneGiven) {
  const test::ReservedPort port;
  EXPECT_THAT(run({"run", "-q", "--store-port", port.text(), worker(), "env", "TUTTI_STORE"}).out,
              MatchesRegex("\\[0\\] TUTTI_STORE=unix:@tutti-[0-9a-f]+," + port.address() + "\n"));
}

TEST(Run, ATakenMasterPortNamesItsHolder) {
  const auto listener = listen(transport::Address{.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(listener.ok());
  const Ended ended = run({"run", "--master-port", std::to_string(listener->address.port), worker(), "print"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("AddressInUse"), HasSubstr(std::to_string(getpid())), HasSubstr("--master-port")));
}

}  // namespace
}  // namespace tutti::testing
