// A rank is stopped (SIGSTOP, a debugger, a machine that swaps): nothing tells but the limit. The others end with
// Timeout, which names the rank and says that it is stopped; the rank itself, awake again, gets an error too.
#include <signal.h>

#include "tests/faults/worlds.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class Stopped : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  const Way way_ = std::get<0>(GetParam());
  const int size_ = std::get<1>(GetParam());
  const bool local_ = way_.transport == "shm";
};

// More than sockets hold: a rank that wakes and finds all that the others sent to it may well end the call.
constexpr std::size_t kLongCall = 4'000'000;  // floats

// `victim` stops itself before a call; rank 0 wakes it after its own error.
TEST_P(Stopped, BeforeACall) {
  const int victim = size_ - 1;
  const auto body = [&](Group& world) {
    const auto pids = processes_of(world);
    const auto data = make_buffer(world, kLongCall, true);
    if (world.rank() == victim) ::raise(SIGSTOP);
    try {
      expect_failure(world, [&] { all_reduce(world, std::span(data.get(), kLongCall)); });
    } catch (...) {
      if (world.rank() == victim && local_)
        check(data[0] == 1, "the call changed the buffer though the group had ended");
      if (world.rank() == 0) ::kill(pids[victim], SIGCONT);
      throw;
    }
  };
  const auto outcomes = run_world(way_, size_, body, {.timeout = 1});
  const std::string cause = expect_one_cause(outcomes, -1);
  const std::string rank = std::to_string(victim);
  EXPECT_THAT(cause,
              MatchesRegex("Timeout: all_reduce #2 .f32.4000000., sum. on group world, rank [0-3]: still waiting "
                           "for ranks? .* after .* of 1 s .*"));
  EXPECT_THAT(cause, MatchesRegex(local_ ? ".*; rank " + rank + " .pid [0-9]+. is stopped .SIGSTOP or a debugger.*"
                                         : ".*; rank " + rank + " gives no answer.*"));
  if (local_) {
    EXPECT_THAT(cause, HasSubstr("kill -CONT"));
  }
  EXPECT_THAT(outcomes[victim].error, HasSubstr("all_reduce #2"));
}

// Rank 0 stops it somewhere in a loop of large calls, and wakes it after its own error.
TEST_P(Stopped, SomewhereInALoop) {
  const int victim = size_ - 1;
  const auto body = [&](Group& world) {
    const auto pids = processes_of(world);
    const auto heap = make_buffer(world, 300000, true), own = make_buffer(world, 300000, false);
    try {
      expect_failure(world, [&] {
        for (int i = 0;; ++i) {
          if (world.rank() == 0 && i == 30) ::kill(pids[victim], SIGSTOP);
          all_reduce(world, std::span(heap.get(), 300000));
          all_reduce(world, std::span(own.get(), 300000));
        }
      });
    } catch (...) {
      if (world.rank() == 0) ::kill(pids[victim], SIGCONT);
      throw;
    }
  };
  const std::string cause = expect_one_cause(run_world(way_, size_, body, {.timeout = 1}), -1);
  EXPECT_THAT(cause, HasSubstr("Timeout: all_reduce #"));
  const std::string rank = std::to_string(victim);
  EXPECT_THAT(cause, MatchesRegex(local_ ? ".*; rank " + rank + " .pid [0-9]+. is stopped .SIGSTOP or a debugger.*"
                                         : ".*; rank " + rank + " gives no answer.*"));
}

// Long before the limit a line says who is waited for.
TEST_P(Stopped, AWarningComesFirst) {
  const int victim = size_ - 1;
  const auto body = [&](Group& world) {
    const auto pids = processes_of(world);
    if (world.rank() == victim) {
      ::raise(SIGSTOP);
      return;
    }
    try {
      float one = 1;
      world.run({.kind = Kind::kAllReduce, .dtype = DType::kF32, .in = &one, .out = &one, .count = 1}).or_throw();
    } catch (const Exception&) {
      ::kill(pids[victim], SIGCONT);
      throw;
    }
  };
  ::testing::internal::CaptureStderr();
  (void)run_world(way_, size_, body, {.timeout = 2, .environment = {{"TUTTI_HANG_WARNING", "300ms"}}});
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("[tutti rank 0] all_reduce #2 (f32[1], sum) on group world, rank 0, has waited "));
  EXPECT_THAT(lines, HasSubstr(" s for rank"));
  if (local_) {
    EXPECT_THAT(lines, HasSubstr("is stopped (SIGSTOP or a debugger)"));
  }
}

// A monitored barrier names it and ends nothing: once awake it is told that it came too late, and all go on.
TEST_P(Stopped, AMonitoredBarrierNamesItAndTheGroupContinues) {
  const int victim = size_ - 1;
  const auto body = [&](Group& world) {
    const auto pids = processes_of(world);
    if (world.rank() == victim) ::raise(SIGSTOP);
    const Status status = world.monitored_barrier(std::chrono::milliseconds(500));
    if (world.rank() == 0) ::kill(pids[victim], SIGCONT);
    const std::string text = status.ok() ? "passed" : to_string(status.error());
    if (world.rank() == victim) {
      check(text.find("this rank arrived too late: the ranks that waited have timed out") != std::string::npos, text);
    } else {
      check(text.find("rank " + std::to_string(victim) + " has not arrived") != std::string::npos, text);
      check(!local_ || text.find("is stopped (SIGSTOP or a debugger)") != std::string::npos, text);
    }
    check(all_reduce(world, 1) == world.size(), "the group goes on");
  };
  EXPECT_EQ(describe(run_world(way_, size_, body)), "");
}

INSTANTIATE_TEST_SUITE_P(Ways, Stopped,
                         ::testing::Combine(::testing::ValuesIn(ways_of_processes()), ::testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
                         });

// The rank that serves the store is the one that stops: nobody can be told anything, and still nobody hangs.
TEST(StoppedStore, TheErrorComesAllTheSame) {
  const auto body = [&](Group& world) {
    const auto pids = processes_of(world);
    if (world.rank() == 0) ::raise(SIGSTOP);
    try {
      expect_failure(world, [&] { barrier(world); });
    } catch (...) {
      if (world.rank() == 1) ::kill(pids[0], SIGCONT);
      throw;
    }
  };
  const auto outcomes = run_world({"", true, "shm", ""}, 2, body, {.timeout = 1, .environment = by_hand()});
  EXPECT_THAT(
      outcomes[1].error,
      MatchesRegex(
          "Timeout: barrier #2 on group world, rank 1: still waiting for rank 0; rank 0 .pid [0-9]+. is stopped .*"));
  EXPECT_FALSE(outcomes[0].hung);
}

}  // namespace
}  // namespace tutti::test
