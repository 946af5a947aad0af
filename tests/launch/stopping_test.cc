// A job that is asked to stop saves and exits with code 75; one that is interrupted in any way resumes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/harness/eventually.h"
#include "tests/launch/await_file.h"
#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSteps = "2000";
constexpr const char* kEndless = "1000000000";

// "sum after 2000 steps: N" of a run that nobody disturbs.
std::string undisturbed(const std::string& folder) {
  const Ended ended = run({"run", "-q", "-n", "1", "--no-prefix", TUTTI_TEST_RESUME, folder + "/undisturbed", kSteps});
  EXPECT_EQ(ended.code, 0) << ended.err;
  return ended.out.substr(ended.out.find("sum after"));
}

std::vector<std::string> resume(const std::string& ranks, const std::string& folder, const std::string& steps,
                                std::vector<std::string> options = {}) {
  std::vector<std::string> arguments = {"run", "-n", ranks};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {TUTTI_TEST_RESUME, folder, steps});
  return arguments;
}

void await_save(const std::string& folder) {
  EXPECT_TRUE(test::eventually([&] { return !newest_checkpoint(folder).empty(); }));
}

TEST(StopRequest, AllRanksSaveAtOneStepAndTheJobResumesFromThere) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const Folder folder;
    const std::string state = folder.path() + "/state";
    Running first(resume("3", state, kEndless));
    await_save(state);
    first.send(signal);
    const Ended saved = first.wait();
    EXPECT_EQ(saved.code, 75) << saved.err;
    EXPECT_THAT(saved.out, HasSubstr("saved at step "));
    EXPECT_THAT(saved.err,
                AllOf(HasSubstr(signal == SIGTERM ? "[tutti] passing SIGTERM on to all ranks; SIGKILL in 30 s"
                                                  : "[tutti] passing SIGUSR1 on to all ranks, which are "
                                                    "asked to save and to leave\n"),
                      Not(HasSubstr("failed"))));
    EXPECT_TRUE(first.nobody_left()) << first.census();
    constexpr std::string_view kSaved = "saved at step ";
    ASSERT_NE(saved.out.find(kSaved), std::string::npos) << saved.out;
    const std::int64_t step = std::atoll(saved.out.c_str() + saved.out.find(kSaved) + kSaved.size());
    const Ended again = run(resume("2", state, std::to_string(step + 7)));  // on another number of ranks
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("from step " + std::to_string(step) + " on 2 ranks"));
  }
}

// SIGUSR1 and SIGUSR2 end a process that has no handler for them, so the agent holds them back until there is one.
TEST(StopRequest, ASignalWaitsForItsHandler) {
  const Folder folder;
  const std::string go = folder.path() + "/go";
  Running running({"run", "-n", "2", "python3", "-c",
                   "import os, signal, sys, time\nprint('ready', flush=True)\n"
                   "while not os.path.exists('" +
                       go +
                       "'): time.sleep(0.01)\n"
                       "signal.signal(signal.SIGUSR2, lambda *a: (print('got it', flush=True), sys.exit(0)))\n"
                       "while True: signal.pause()"});
  running.await_out("ready", 2);
  running.send(SIGUSR2);
  running.await_err("ranks 0, 1 have no handler for SIGUSR2 yet: the signal follows when they install one");
  std::ofstream(go).put('\n');
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] got it"), HasSubstr("[1] got it")));
}

// It must not end the ranks, and a restart must not train on past the scheduler's time limit.
TEST(StopRequest, ARequestBeforeTheProgramHasBegunIsRemembered) {
  const Folder folder;
  const std::string go = folder.path() + "/go", slow = folder.path() + "/slow", state = folder.path() + "/state";
  std::ofstream(slow) << "#!/bin/sh\necho ready\nwhile [ ! -e " << go << " ]; do sleep 0.01; done\nexec \"$@\"\n";
  std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
  Running running({"run", "-n", "2", "--max-restarts", "3", slow, TUTTI_TEST_RESUME, state, kEndless});
  running.await_out("ready", 2);
  running.send(SIGUSR1);
  running.await_err("no handler for SIGUSR1 yet");
  std::ofstream(go).put('\n');
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("saved at step "));
}

TEST(StopRequest, ARankThatFailsAfterwardsIsNotRestarted) {
  Running running({"run", "-n", "2", "--max-restarts", "3", "sh", "-c",
                   "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; done"});
  running.await_out("ready", 2);
  running.send(SIGUSR1);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 9) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("no restart: the job was asked to stop\n"), Not(HasSubstr("restart 1"))));
}

TEST(StopRequest, OneRankIsEnough) {
  const Folder folder;
  const std::string state = folder.path() + "/state";
  Running running(resume("2", state, kEndless));
  await_save(state);
  std::ifstream children("/proc/" + std::to_string(running.agent()) + "/task/" + std::to_string(running.agent()) +
                         "/children");
  pid_t rank0 = 0, rank1 = 0;
  children >> rank0 >> rank1;
  ASSERT_GT(rank1, 0);
  kill(rank1, SIGTERM);  // as a scheduler may, which does not know of agents
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("[0] saved at step "));
}

TEST(StopRequest, ASecondSignalLeavesAtOnce) {
  Running running({"run", "-n", "2", "--signal-grace", "10min", TUTTI_TEST_WORLD, "deaf"});
  running.await_out("listening", 2);
  running.send(SIGTERM);
  running.await_err("passing SIGTERM on to all ranks");
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST(StopRequest, WithoutAnAgentTooButNotForTwoAtOnce) {
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    for (const char* name : {"RANK", "WORLD_SIZE", "TUTTI_STORE", "TUTTI_PROGRESS_FD"}) unsetenv(name);
    execl(TUTTI_TEST_WORLD, "world", "deaf", nullptr);
    _exit(127);
  }
  close(out[1]);
  std::string said;
  for (char c = 0; said.find("listening") == std::string::npos && read(out[0], &c, 1) == 1;) said += c;
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    kill(pid, SIGTERM);
    usleep(20'000);
  }
  close(out[0]);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), 143);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(Resume, ARestartAfterACrashResumesFromTheLastCheckpoint) {
  const Folder folder;
  const std::string state = folder.path() + "/state", whole = undisturbed(folder.path());
  std::string crash = folder.path() + "/crash";
  std::ofstream(crash) << "#!/bin/sh\n[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && { exec 3<>/dev/null; "
                       << "(until set -- " << state << "/step-*; [ -e $1 ]; do :; done; kill -9 $$) & }\nexec \"$@\"\n";
  std::filesystem::permissions(crash, std::filesystem::perms::owner_all);
  const Ended ended =
      run({"run", "-n", "2", "--max-restarts", "1", "--restart-pause", "1ms", crash, TUTTI_TEST_RESUME, state, kSteps});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("attempt 0 failed: rank 1"), HasSubstr("was killed by SIGKILL")));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] from step 0 on 2 ranks"), HasSubstr(whole)));
}

TEST(Resume, AnyNumberOfInterruptionsGivesTheSameSum) {
  const Folder folder;
  const std::string state = folder.path() + "/state", whole = undisturbed(folder.path());
  std::string last;
  for (const std::string part : {"300", "1111", kSteps})
    last = run(resume(part == "1111" ? "3" : "2", state, part, {"-q", "--no-prefix"})).out;
  EXPECT_THAT(last, AllOf(HasSubstr("from step 1111 on 2 ranks"), HasSubstr(whole)));
}

}  // namespace
}  // namespace tutti::testing
