// A rank is killed by SIGKILL, before, between and in the middle of operations of every kind. Every other rank ends
// with an error that names it, long before any limit, and all tell the same root cause.
#include <signal.h>

#include <thread>

#include "tests/faults/worlds.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

[[noreturn]] void die() {
  ::raise(SIGKILL);
  std::abort();
}

class Killed : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  const Way way_ = std::get<0>(GetParam());
  const int size_ = std::get<1>(GetParam());

  // Runs `body` on every rank; `victim` kills itself in there, the others must fail and name it.
  void expect_named(int victim, const RankBody& body) {
    const auto outcomes = run_world(way_, size_, body);
    EXPECT_EQ(outcomes[victim].signal, SIGKILL);
    const std::string cause = expect_one_cause(outcomes, victim);
    const std::string rank = "rank " + std::to_string(victim);
    if (way_.transport == "tcp") {
      EXPECT_THAT(cause, HasSubstr(rank + " at 127.0.0.1:"));
    } else {
      EXPECT_THAT(cause, MatchesRegex(
                             "PeerLost: .* on group world.*, rank [0-3]: " + rank +
                             " .pid [0-9]+. has exited: it was killed, crashed, or ended without leaving the group.*"));
    }
  }
};

TEST_P(Killed, BeforeTheFirstCall) {
  const int victim = size_ - 1;
  expect_named(victim, [&](Group& world) {
    if (world.rank() == victim) die();
    float one = 1;
    expect_failure(world, [&] { all_reduce(world, std::span(&one, 1)); });
  });
}

TEST_P(Killed, BetweenCalls) {
  const int victim = size_ / 2;
  expect_named(victim, [&](Group& world) {
    float one = 1;
    for (int i = 0; i < 20; ++i) all_reduce(world, std::span(&one, 1));
    if (world.rank() == victim) die();
    expect_failure(world, [&] { barrier(world); });
  });
}

// Where in the loop it is killed is chance; small, one-shot and large calls take turns, in private and shared memory.
TEST_P(Killed, SomewhereInALoop) {
  for (const int victim : {0, size_ - 1}) {
    expect_named(victim, [&](Group& world) {
      const auto heap = make_buffer(world, 200000, true), own = make_buffer(world, 200000, false);
      barrier(world);
      std::thread killer;
      if (world.rank() == victim)
        killer = std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20 + ::getpid() % 7));
          die();
        });
      expect_failure(world, [&] {
        for (;;) {
          for (const std::size_t count : {1, 700, 200000}) {
            all_reduce(world, std::span(heap.get(), count));
            all_reduce(world, std::span(own.get(), count));
          }
          broadcast(world, std::span(own.get(), 200000), 1);
        }
      });
    });
  }
}

TEST_P(Killed, WithAWorkInFlight) {
  const int victim = size_ - 1;
  expect_named(victim, [&](Group& world) {
    const auto data = make_buffer(world, 1000000, false);
    const Work work = all_reduce_async(world, std::span(data.get(), 1000000));
    if (world.rank() == victim) die();
    // The victim may have taken part to the end: then the next call fails.
    expect_failure(world, [&] {
      work.get();
      barrier(world);
    });
  });
}

TEST_P(Killed, WhileOthersReceive) {
  const int victim = 0;
  expect_named(victim, [&](Group& world) {
    float value = 0;
    if (world.rank() == victim) {
      for (int r = 1; r < size_; ++r) send(world, std::span<const float>(&value, 1), r);
      barrier(world);
      die();
    }
    recv(world, std::span(&value, 1), victim);
    barrier(world);
    expect_failure(world, [&] { recv(world, std::span(&value, 1), victim); });
  });
}

// Half of a message has come when the sender dies.
TEST_P(Killed, InTheMiddleOfAMessage) {
  const int victim = size_ - 1;
  expect_named(victim, [&](Group& world) {
    const auto data = make_buffer(world, 4000000, false);
    const std::span all(data.get(), 4000000);
    if (world.rank() == victim) {
      const Work work = isend(world, std::span<const float>(all), 0);
      barrier(world);  // the link is full by now, or nearly
      die();
    }
    barrier(world);
    expect_failure(world, [&] {
      if (world.rank() == 0) recv(world, all, victim);
      barrier(world);
    });
  });
}

TEST_P(Killed, WhileOthersSplit) {
  const int victim = 1;
  expect_named(victim, [&](Group& world) {
    barrier(world);
    if (world.rank() == victim) die();
    expect_failure(world, [&] { (void)world.split(world.rank() % 2, 0).or_throw(); });
  });
}

TEST_P(Killed, InASubGroup) {
  if (size_ < 3) return;
  const int victim = size_ - 1;
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    const int members[] = {1, victim};
    Group pair = world.new_group(members, "pair").or_throw();
    barrier(world);
    if (world.rank() == victim) die();
    if (pair && pair.size() == 2) {
      const Status status = pair.run({.kind = Kind::kBarrier});
      check(!status.ok() && to_string(status.error()).find("on group world/pair, rank 0: rank 1 ") != std::string::npos,
            "pair: ", status.ok() ? "ok" : to_string(status.error()));
    }
    expect_failure(world, [&] { barrier(world); });
  });
  expect_one_cause(outcomes, victim);
}

TEST_P(Killed, TheOtherRanksContinueWithoutIt) {
  // Another library may still be at the barrier on one rank when the next one hears of the death, which ends that too.
  if (size_ < 3 || !way_.engine.empty()) return;
  const int victim = size_ - 1;
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    Group others = world.split(world.rank() == victim ? -1 : 0, 0).or_throw();
    barrier(world);
    if (world.rank() == victim) die();
    const Status status = world.run({.kind = Kind::kBarrier});
    check(!status.ok(), "the world went on");
    check(all_reduce(others, 1) == size_ - 1, "the sum of the rest");
  });
  for (int r = 0; r < victim; ++r) EXPECT_TRUE(outcomes[r].ok()) << describe(outcomes);
}

INSTANTIATE_TEST_SUITE_P(Ways, Killed,
                         ::testing::Combine(::testing::ValuesIn(ways_with_engines()), ::testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
                         });

// A receive that waits for a living rank hides nobody's death from another one.
TEST_P(Killed, WhileOthersAreAwaitedToo) {
  const auto& [way, size] = GetParam();
  if (size < 3) return;  // it takes one that lives and says nothing
  const int victim = size - 1;
  const auto outcomes = run_world(way, size, [&](Group& world) {
    barrier(world);
    if (world.rank() == victim) die();
    float a = 0, b = 0;
    if (world.rank() == 0) {
      const Work living = irecv(world, std::span(&a, 1), 1), dead = irecv(world, std::span(&b, 1), victim);
      expect_failure(world, [&] { dead.get(); });
    }
    expect_failure(world, [&] { recv(world, std::span(&a, 1), 0); });
  });
  EXPECT_THAT(expect_one_cause(outcomes, victim), HasSubstr(": rank " + std::to_string(victim) + " "));
}

// Started by hand: rank 0 serves the store, and takes with it the place where errors are told.
class KilledByHand : public ::testing::TestWithParam<std::tuple<Way, int>> {};

TEST_P(KilledByHand, TheRankThatServesTheStore) {
  const auto [way, size] = GetParam();
  const auto outcomes = run_world(way, size,
                                  [](Group& world) {
                                    barrier(world);
                                    if (world.rank() == 0) die();
                                    expect_failure(world, [&] { barrier(world); });
                                  },
                                  {.environment = by_hand()});
  EXPECT_EQ(expect_one_cause(outcomes, 0), "rank 0, which served the job's store, has exited");
}

TEST_P(KilledByHand, AnotherOne) {
  const auto [way, size] = GetParam();
  const int victim = size - 1;
  const auto outcomes = run_world(way, size,
                                  [&](Group& world) {
                                    barrier(world);
                                    if (world.rank() == victim) die();
                                    expect_failure(world, [&] { barrier(world); });
                                  },
                                  {.environment = by_hand()});
  EXPECT_THAT(expect_one_cause(outcomes, victim), HasSubstr(": rank " + std::to_string(victim) + " "));
}

INSTANTIATE_TEST_SUITE_P(Ways, KilledByHand,
                         ::testing::Combine(::testing::ValuesIn(ways_of_processes()), ::testing::Values(2, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tutti::test
