// Real processes under a Monitor; what it judges is stalls_test.cc's.
#include "tutti/launch/monitor/monitor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tutti/launch/monitor/stacks.h"

namespace tutti::launch {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Monitors : public ::testing::Test {
 protected:
  void start(int ranks) {
    spec_.program = "/bin/sleep";
    spec_.arguments = {"sleep", "1000"};
    spec_.shares.resize(std::size_t(ranks));
    Round round;
    round.layout.counts = {ranks};
    ASSERT_TRUE(workers_.start(spec_, round, "", current_environment(), consoles_).ok());
  }
  ~Monitors() override {
    workers_.stop_groups(SIGKILL);
    for (Worker& worker : workers_) waitpid(worker.pid(), nullptr, 0);
  }
  // Checks until the monitor has printed `text`, or for a minute.
  void check_until_said(const std::string& text) {
    const Deadline patience = Deadline::after_seconds(60);
    while (!patience.expired()) {
      for (const std::string& line : said_)
        if (line.find(text) != std::string::npos) return;
      PollSet events;
      monitor_.listen(events, workers_);
      events.wait();
      EXPECT_FALSE(monitor_.check(workers_));
    }
    FAIL() << "never printed: " << text;
  }
  void check_twice() {
    for (int i = 0; i < 2; ++i) {
      PollSet events;
      monitor_.listen(events, workers_);
      events.wait();
      EXPECT_FALSE(monitor_.check(workers_));
    }
  }
  pid_t pid(int rank) { return workers_.begin()[rank].pid(); }
  // The page that a rank has from its agent. The test writes it in the rank's place.
  std::unique_ptr<trace::ProgressPage> page(int rank) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid(rank)) + "/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry, gone).string().rfind("/memfd:tutti-progress", 0) != 0) continue;
      return std::move(*trace::ProgressPage::open(Fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC)).get()));
    }
    return nullptr;
  }

  AgentSpec spec_;
  Consoles consoles_{""};
  Workers workers_;
  std::vector<std::string> said_;
  Monitor monitor_{{}, "no rank", "", [this](const std::string& line) { said_.push_back(line); }};
};

TEST_F(Monitors, AStoppedRankIsReportedAndWhenItContinues) {
  start(2);
  kill(pid(1), SIGSTOP);
  check_until_said("rank 1 (pid " + std::to_string(pid(1)) + ") is stopped (SIGSTOP or a debugger)");
  EXPECT_EQ(monitor_.status(workers_).at(1).state, "stopped");
  EXPECT_EQ(monitor_.status(workers_).at(0).state, "runs");
  kill(pid(1), SIGCONT);
  check_until_said("rank 1 (pid " + std::to_string(pid(1)) + ") continues");
  EXPECT_THAT(said_, Not(Contains(HasSubstr("rank 0"))));
}

// The agent itself continues a stopped rank, to end it.
TEST_F(Monitors, ARankThatTheAgentContinuesToEndItIsNotReported) {
  start(2);
  kill(pid(1), SIGSTOP);
  check_until_said("rank 1 (pid " + std::to_string(pid(1)) + ") is stopped (SIGSTOP or a debugger)");
  workers_.begin()[1].mark_stopped();
  kill(pid(1), SIGCONT);
  kill(pid(0), SIGSTOP);
  check_until_said("rank 0 (pid " + std::to_string(pid(0)) + ") is stopped (SIGSTOP or a debugger)");
  kill(pid(0), SIGCONT);
  check_until_said("rank 0 (pid " + std::to_string(pid(0)) + ") continues");
  EXPECT_THAT(said_, Not(Contains(HasSubstr("rank 1 (pid " + std::to_string(pid(1)) + ") continues"))));
}

// Also of a rank that has counted all its steps before the first check, and of one that no longer counts any.
TEST_F(Monitors, TheRateOfARankThatHasCountedAStepIsKnown) {
  start(2);
  check_twice();
  EXPECT_EQ(monitor_.status(workers_).at(0).steps_a_second, -1) << "it has not called init()";
  const auto early = page(0), late = page(1);
  ASSERT_TRUE(early && late);
  early->join(0, 2);
  early->begin_step(7);
  late->join(1, 2);
  check_twice();
  EXPECT_EQ(monitor_.status(workers_).at(0).steps_a_second, 0);
  EXPECT_EQ(monitor_.status(workers_).at(1).steps_a_second, -1) << "it has counted no step";
  late->begin_step(1);
  check_twice();
  EXPECT_GT(monitor_.status(workers_).at(1).steps_a_second, 0);
}

TEST_F(Monitors, AnExitIsReportedInTheStatusAndInTheReport) {
  start(2);
  EXPECT_FALSE(monitor_.check(workers_));
  kill(pid(0), SIGKILL);
  std::vector<Worker*> ended;
  const Deadline patience = Deadline::after_seconds(60);
  while (ended.empty() && !patience.expired()) ended = workers_.reap();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(monitor_.status(workers_).at(0).state, "failed");
  monitor_.freeze(workers_);
  Failure failure{.culprit = ended[0]->end()};
  monitor_.complete(failure, workers_);
  EXPECT_THAT(failure.seen.doing, IsEmpty()) << "sleep tells nothing of itself";
  EXPECT_THAT(failure.backtrace, IsEmpty());
  EXPECT_EQ(monitor_.dying(workers_, *ended[0]), nullptr);
}

// A process without a progress page that ignores SIGUSR2: only the kernel's information remains.
TEST_F(Monitors, StacksOfASilentProcessHaveTheKernelsInformation) {
  start(1);
  Stacks stacks({{0, pid(0), workers_.begin()->progress()}}, std::chrono::seconds(15));
  while (!stacks.over()) {
    PollSet events;
    stacks.listen(events);
    events.wait();
  }
  const auto short_stack = stacks.short_stack(0, Deadline::after_seconds(60));
  EXPECT_THAT(stacks.text_of(0, short_stack),
              AllOf(HasSubstr("rank 0\n"), HasSubstr("What its threads wait for in the kernel:")));
  EXPECT_EQ(stacks.text_of(7, {}), "rank 7\n");
  EXPECT_TRUE(workers_.begin()->alive()) << "nobody dies of being asked";
  EXPECT_EQ(kill(pid(0), 0), 0);
}

TEST_F(Monitors, StacksEndWithTheirTime) {
  start(1);
  Stacks stacks({{0, pid(0), workers_.begin()->progress()}}, Duration(0));
  EXPECT_TRUE(stacks.over());
}

}  // namespace
}  // namespace tutti::launch
