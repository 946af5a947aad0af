// Real processes; what becomes of them is tests/launch's.
#include "tutti/launch/agent/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tutti/launch/agent/events.h"

namespace tutti::launch {
namespace {

using ::testing::HasSubstr;

TEST(Workers, ReportTheirPeakMemory) {
  AgentSpec spec;
  spec.program = "/bin/sh";
  spec.shares.resize(1);
  Round round;
  round.layout.counts = {1};
  Consoles consoles("");
  const auto peak_of = [&](const std::string& script) {
    spec.arguments = {"sh", "-c", script};
    Workers workers;
    EXPECT_TRUE(workers.start(spec, round, "", current_environment(), consoles).ok());
    siginfo_t child{};
    EXPECT_EQ(waitid(P_ALL, 0, &child, WEXITED | WNOWAIT), 0);
    const std::vector<Worker*> ended = workers.reap();
    return ended.empty() ? 1 : ended[0]->end().most_resident;
  };
  EXPECT_EQ(peak_of("exit 0"), 0u) << "less than this process: it may be what our copy had";
  EXPECT_GE(peak_of("exec dd if=/dev/zero of=/dev/null bs=200M count=1"), 200u << 20);
}

TEST(Workers, AreNotStartedOnceTheUserWantsTheEnd) {
  auto signals = Signals::take();
  ASSERT_TRUE(signals.ok());
  EXPECT_FALSE(end_is_asked_for());
  raise(SIGUSR1);
  EXPECT_FALSE(end_is_asked_for());
  raise(SIGTERM);
  EXPECT_TRUE(end_is_asked_for());
  AgentSpec spec;
  spec.program = "/bin/sleep";
  spec.arguments = {"sleep", "1000"};
  spec.shares.resize(3);
  Round round;
  round.layout.counts = {3};
  Consoles consoles("");
  Workers workers;
  const Status started = workers.start(spec, round, "", current_environment(), consoles);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Code::kAborted);
  EXPECT_THAT(started.error().detail, HasSubstr("a signal arrived when 0 of 3 had been started"));
  EXPECT_FALSE(workers.any_alive());
  EXPECT_THAT(signals->read(),
              ::testing::UnorderedElementsAre(ArrivedSignal{SIGUSR1, getpid()}, ArrivedSignal{SIGTERM, getpid()}));
  EXPECT_FALSE(end_is_asked_for());
}

}  // namespace
}  // namespace tutti::launch
