// How a job ends badly: who is named, what the exit code is, and that nobody stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/launch/await_file.h"
#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Failure, NamesTheRankItsCodeAndItsLastLines) {
  const Folder folder;
  const Ended ended = run({"run", "-n", "4", "--log-dir", folder.path() + "/logs", "--job-id", "j", worker(), "fail",
                           "2", "7", folder.path()});
  EXPECT_EQ(ended.code, 7);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("[tutti] rank 2 (pid "),
                               HasSubstr(") exited with code 7; stopping the other 3 ranks of this node\n"),
                               HasSubstr("[tutti] the job failed: rank 2 (pid "), HasSubstr("its last 3 lines:\n"),
                               HasSubstr("[2] step 42\n"), HasSubstr("[2] about to fail\n"),
                               HasSubstr("also ended: ranks 0, 1, 3 were running and ended because of it"),
                               HasSubstr("all of its output: stdout.log and stderr.log in " + folder.path() +
                                         "/logs/j/attempt_0/rank_2\n")));
}

TEST(Failure, NamesTheSignal) {
  const Folder folder;
  const Ended segv = run({"run", "-n", "2", worker(), "fail", "1", std::to_string(-SIGSEGV), folder.path()});
  EXPECT_EQ(segv.code, 128 + SIGSEGV);
  EXPECT_THAT(segv.err, AllOf(HasSubstr("was killed by SIGSEGV (segmentation fault)"),
                              HasSubstr("also ended: rank 0 was running")));
  const Folder other;
  const Ended killed = run({"run", "-n", "2", worker(), "fail", "0", std::to_string(-SIGKILL), other.path()});
  EXPECT_EQ(killed.code, 137);
  EXPECT_THAT(killed.err,
              AllOf(HasSubstr("rank 0 (pid "), HasSubstr("was killed by SIGKILL"), HasSubstr("also ended: rank 1")));
}

TEST(Failure, DistinguishesRanksThatFailedAsWellFromStoppedOnes) {
  const Folder folder;
  const std::string script =
      "case $RANK in 0) exit 3 ;; "
      "1) trap '' TERM; while [ ! -e $0/over ]; do sleep 0.02; done; kill -SEGV $$ ;; "
      "2) trap ': > $0/over; exit 9' TERM; while :; do sleep 0.02; done ;; esac";
  const Ended ended = run({"run", "-n", "3", "--grace", "60s", "--", "sh", "-c", script, folder.path()});
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the job failed: rank 0 (pid "),
                               HasSubstr("failed as well, because of it or by itself: rank 1 was killed by SIGSEGV"),
                               HasSubstr("also ended: rank 2 was running and ended because of it")));
}

TEST(Failure, KillsARankThatIgnoresSigterm) {
  const Folder folder;
  const Ended ended = run({"run", "-n", "2", "--grace", "200ms", worker(), "stubborn", folder.path()});
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.err, HasSubstr("also ended: rank 0 ran for another 200 ms after SIGTERM and needed SIGKILL"));
}

TEST(Failure, ShowsWhatTheRankWroteIntoItsErrorFile) {
  const Ended ended = run({"run", worker(), "error-file"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("its message: ValueError: the loss is NaN"), HasSubstr("it wrote no output")));
}

// A rank may change its folder, so its variable has to be an absolute path.
TEST(Failure, ShowsWhatTheRankWroteIntoItsErrorFileFromAnotherFolder) {
  const Folder folder;
  const std::string logs = std::filesystem::relative(folder.path()).string();
  const Ended ended =
      run({"run", "--log-dir", logs, "sh", "-c", "cd / && echo the loss is NaN > $TORCHELASTIC_ERROR_FILE; exit 1"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("its message: the loss is NaN"));
}

// What jobs left in a folder for temporary files; the user's runtime folder there stays, for all jobs.
int left_in(const std::string& folder) {
  int count = 0;
  const std::string runtime = "tutti-" + std::to_string(::geteuid());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    count += entry.path().filename() != runtime;
  return count;
}

// Reading it would never end.
TEST(Failure, AnErrorFileThatIsAPipeDelaysNoRank) {
  const Folder folder;
  const Ended ended = run({"run", "-n", "2", "sh", "-c", "mkfifo $TORCHELASTIC_ERROR_FILE; exit 3"},
                          {{"TMPDIR", folder.path()}, {"XDG_RUNTIME_DIR", ""}});
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.err, HasSubstr("it wrote no output"));
  EXPECT_EQ(left_in(folder.path()), 0);
}

TEST(Failure, ErrorFilesAreRemoved) {
  const Folder folder;
  const Ended ended = run({"run", worker(), "error-file"}, {{"TMPDIR", folder.path()}, {"XDG_RUNTIME_DIR", ""}});
  EXPECT_THAT(ended.err, HasSubstr("ValueError"));
  EXPECT_EQ(left_in(folder.path()), 0);
}

TEST(Failure, EndsWhatACleanJobLeftRunning) {
  const Folder folder;
  const Ended ended = run({"run", "-n", "2", worker(), "daemon", folder.path(), "exit"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("ended what the ranks had left running: "));
}

TEST(Failure, NoTimeLimitIsZeroAsNoHangTimeoutIs) {
  for (const char* none : {"0", "0s"})
    EXPECT_EQ(run({"run", "-q", "--timeout", none, "--hang-timeout", none, "sh", "-c", "sleep 0.2"}).code, 0) << none;
}

TEST(Failure, TimeLimit) {
  const Ended ended = run({"run", "-n", "2", "--timeout", "300ms", worker(), "pause"});
  EXPECT_EQ(ended.code, 124);
  EXPECT_THAT(ended.err, HasSubstr("the time limit of 300 ms has passed"));
}

// Every way to kill the launcher, with ranks that have started daemons.
class KilledLauncher : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledLauncher, LeavesNoProcess) {
  const Folder folder;
  Running running({"run", "-n", "2", worker(), "daemon", folder.path(), "stay"});
  running.await_out("ready", 2);
  const bool agent = GetParam() == std::string("agent");
  kill(agent ? running.agent() : running.pid(), SIGKILL);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 137);
  EXPECT_TRUE(running.nobody_left()) << running.census();
  if (agent) {
    EXPECT_THAT(ended.err, HasSubstr("the agent was killed by SIGKILL; its workers were ended"));
  }
}
INSTANTIATE_TEST_SUITE_P(Kill9, KilledLauncher, ::testing::Values("agent", "supervisor"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Signals, OneIsPassedOnSoThatRanksCanSave) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Running running({"run", "-n", "2", worker(), "trap", "0"});
    running.await_out("ready", 2);
    running.send(signal);
    const Ended ended = running.wait();
    EXPECT_EQ(ended.code, 0);  // every rank ended well, by its own word
    EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] saved after " + std::to_string(signal)),
                                 HasSubstr("[1] saved after " + std::to_string(signal))));
    EXPECT_TRUE(running.nobody_left()) << running.census();
  }
}

TEST(Signals, ARanksOwnCodeAfterSavingIsTheJobs) {
  Running running({"run", "-n", "2", worker(), "trap", "75"});
  running.await_out("ready", 2);
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 75);
}

TEST(Signals, ARankThatDoesNotCatchItEndsTheJobWithThatSignal) {
  Running running({"run", "-n", "2", worker(), "pause"});
  running.await_out("ready", 2);
  running.send(SIGINT);
  EXPECT_EQ(running.wait().code, 130);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

// As Slurm with proctrack/linuxproc, which signals the agent and the supervisor. Each signal has a name of its own
// here, so the message shows which one counted as the second.
TEST(Signals, OneToEveryProcessIsNoSecondOne) {
  const Folder folder;
  Running running({"run", "-n", "1", "--signal-grace", "10min", worker(), "stubborn", folder.path()});
  await_file(folder.path() + "/deaf");
  kill(running.agent(), SIGTERM);
  running.await_err("passing SIGTERM on to all ranks");
  running.send(SIGINT);   // the same request, by way of the supervisor
  running.send(SIGTERM);  // the second request
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 143);
  EXPECT_THAT(ended.err, HasSubstr("a second SIGTERM: killing"));
  EXPECT_THAT(ended.err, Not(HasSubstr("a second SIGINT: killing")));
}

TEST(Signals, TheSecondOneKills) {
  const Folder folder;
  Running running({"run", "-n", "1", "--signal-grace", "10min", worker(), "stubborn", folder.path()});
  await_file(folder.path() + "/deaf");
  running.send(SIGTERM);
  running.await_err("passing SIGTERM on to all ranks");
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST(Signals, AStoppedAgentIsWoken) {
  Running running({"run", "-n", "2", worker(), "pause"});
  running.await_out("ready", 2);
  kill(running.agent(), SIGSTOP);
  running.send(SIGINT);
  EXPECT_EQ(running.wait().code, 130);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

// The letter of /proc/PID/stat; 0 if the process is gone.
char state_of(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = text.rfind(") ");
  return name_end == std::string::npos ? 0 : text[name_end + 2];
}

TEST(Signals, TheSecondOneKillsAnAgentThatIsStopped) {
  const Folder folder;
  Running running({"run", "-n", "1", "--signal-grace", "10min", worker(), "stubborn", folder.path()});
  await_file(folder.path() + "/deaf");
  running.send(SIGTERM);
  running.await_err("passing SIGTERM on to all ranks");
  const pid_t agent = running.agent();
  kill(agent, SIGSTOP);
  while (state_of(agent) != 'T') usleep(1000);  // a signal takes its time
  running.send(SIGTERM);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 137);
  EXPECT_THAT(ended.err, HasSubstr("the agent was killed by SIGKILL; its workers were ended"));
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST(Failure, NoFileStaysBehindAKilledAgentOrSupervisor) {
  for (const std::string killed : {"agent", "supervisor", "both"}) {
    const Folder folder;
    const bool writes = killed != "both";  // then nobody is left to remove it
    const std::string script =
        writes ? "echo bad > $TORCHELASTIC_ERROR_FILE; echo ready; sleep 1000" : "echo ready; sleep 1000";
    Running running({"run", "-n", "2", "sh", "-c", script}, {{"TMPDIR", folder.path()}, {"XDG_RUNTIME_DIR", ""}});
    running.await_out("ready", 2);
    EXPECT_EQ(left_in(folder.path()), writes ? 3 : 1) << "with the socket that tutti status asks";
    const pid_t agent = running.agent();
    if (killed != "agent") kill(running.pid(), SIGKILL);
    if (killed != "supervisor") kill(agent, SIGKILL);
    running.wait();
    EXPECT_TRUE(killed == "both" || running.nobody_left()) << running.census();
    EXPECT_EQ(left_in(folder.path()), writes ? 0 : 1) << killed;  // a socket goes when the next job starts
  }
}

TEST(Failure, RanksThatSavedUnaskedAreReported) {
  const Ended unasked = run({"run", "-n", "2", "-q", "sh", "-c", "exit $((RANK * 75))"});
  EXPECT_EQ(unasked.code, 75);
  EXPECT_THAT(unasked.err, HasSubstr("rank 1 left with code 75: their state is saved, and the job can be started again "
                                     "(this node got no stop signal)"));
  Running asked({"run", "-q", worker(), "trap", "75"});
  asked.await_out("ready");
  asked.send(SIGTERM);
  const Ended ended = asked.wait();
  EXPECT_EQ(ended.code, 75);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 0 left with code 75"), Not(HasSubstr("nobody told it"))));
}

TEST(Signals, AStoppedRankIsEndedToo) {
  const Folder folder;
  Running running({"run", "-n", "2", worker(), "fail", "1", std::to_string(-SIGSTOP), folder.path()});
  running.await_err("about to fail");
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

}  // namespace
}  // namespace tutti::testing
