// A rank leaves while others count on it: in peace, driven out by an exception, without a word; and what becomes of
// calls under way when the handles go.
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/faults/worlds.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class Leaving : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  const Way way_ = std::get<0>(GetParam());
  const int size_ = std::get<1>(GetParam());
  const int leaver_ = size_ - 1;
};

TEST_P(Leaving, InPeace) {
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    barrier(world);
    if (world.rank() == leaver_) return;
    expect_failure(world, [&] { barrier(world); });
  });
  const std::string cause = expect_one_cause(outcomes, leaver_);
  EXPECT_TRUE(outcomes[leaver_].ok()) << describe(outcomes);
  EXPECT_THAT(cause, MatchesRegex("PeerLost: barrier #2 on group world, rank [0-3]: rank " + std::to_string(leaver_) +
                                  " (at 127.0.0.1:[0-9]+ |.pid [0-9]+. )has left and will not take part.* .hint: do "
                                  "all ranks make the same number of calls.*"));
}

TEST_P(Leaving, DrivenOutByAnException) {
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    barrier(world);
    if (world.rank() == leaver_) throw std::runtime_error("the loss is NaN");
    expect_failure(world, [&] { barrier(world); });
  });
  const std::string cause = expect_one_cause(outcomes, leaver_);
  EXPECT_EQ(outcomes[leaver_].error, "the loss is NaN");
  EXPECT_THAT(cause, MatchesRegex("PeerLost: barrier #2 .*: rank " + std::to_string(leaver_) +
                                  " .*left because of an exception and will not take part.*"));
}

TEST_P(Leaving, ByExit) {
  if (!way_.processes) return;
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    barrier(world);
    if (world.rank() == leaver_) std::exit(0);
    expect_failure(world, [&] { barrier(world); });
  });
  const std::string cause = expect_one_cause(outcomes, leaver_);
  EXPECT_THAT(cause, HasSubstr("rank " + std::to_string(leaver_) + " "));
  EXPECT_THAT(cause, AnyOf(HasSubstr("ended without leaving"), HasSubstr("closed the connection"),
                           HasSubstr("broke the connection")));
}

// Rank 0 serves the store, and hears of the loss from rank 1 only.
TEST_P(Leaving, ALostRankIsNotWaitedFor) {
  if (!way_.processes || size_ < 3) return;
  const auto outcomes =
      run_world(way_, size_,
                [&](Group& world) {
                  barrier(world);
                  if (world.rank() == leaver_) ::raise(SIGKILL);
                  float word = 0;
                  expect_failure(world, [&] { recv(world, std::span(&word, 1), world.rank() == 1 ? leaver_ : 1); });
                },
                {.leave_timeout = 1000, .environment = by_hand()});
  expect_one_cause(outcomes, leaver_);
}

// The buffers are freed after the exception has passed the Work: nobody writes to them any more (AddressSanitizer
// looks).
TEST_P(Leaving, DrivenOutWithAWorkUnderWay) {
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    barrier(world);
    if (world.rank() == leaver_) {
      std::vector<float> data(300000, 1.0f), more(10);
      const Work work = all_reduce_async(world, std::span(data)), waiting = irecv(world, std::span(more), 0);
      throw std::runtime_error("the loss is NaN");
    }
    const auto data = make_buffer(world, 300000, false);
    expect_failure(world, [&] {
      all_reduce(world, std::span(data.get(), 300000));
      barrier(world);
    });
  });
  EXPECT_EQ(outcomes[leaver_].error, "the loss is NaN");
  EXPECT_THAT(expect_one_cause(outcomes, leaver_), HasSubstr("an exception ended the call on this rank"));
}

// The others are late; the rank that leaves waits for them.
TEST_P(Leaving, TheLastHandleWaitsForWhatIsUnderWay) {
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    std::vector<float> data(1000, 1.0f);
    barrier(world);
    if (world.rank() == leaver_) {
      (void)all_reduce_async(world, std::span(data));
      world = Group();
      check(data[0] == float(size_), "left before the call was done");
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    all_reduce(world, std::span(data));
  });
  EXPECT_EQ(describe(outcomes), "");
}

// Nobody else makes the call: leaving gives up after a while, with an error that says so.
TEST_P(Leaving, TheLastHandleGivesUpAtLast) {
  const auto leave = [&](Group& world) {
    std::vector<float> data(1000, 1.0f);
    barrier(world);
    if (world.rank() != leaver_) expect_failure(world, [&] { recv(world, std::span(data), leaver_); });
    const Work work = all_reduce_async(world, std::span(data));
    const Group again = world;
    world = Group();  // not the last handle
    check(!work.done(), "done");
  };
  const auto outcomes = run_world(way_, size_, leave, {.leave_timeout = 0.2});
  EXPECT_TRUE(outcomes[leaver_].ok()) << describe(outcomes);
  EXPECT_THAT(expect_one_cause(outcomes, leaver_),
              HasSubstr("this rank left the group while the call was in progress"));
}

TEST_P(Leaving, AbortReachesTheOthers) {
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    barrier(world);
    if (world.rank() == leaver_) {
      world.abort(Error{.code = Code::kAborted, .detail = "the validation loss went up"});
      expect_failure(world, [&] { barrier(world); });
    }
    expect_failure(world, [&] { barrier(world); });
  });
  EXPECT_EQ(expect_one_cause(outcomes, -1),
            "Aborted: group world, rank " + std::to_string(leaver_) + ": the validation loss went up");
}

TEST_P(Leaving, AbortEndsWhatIsUnderWay) {
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    std::vector<float> data(10), more(10);
    barrier(world);
    const int from = (world.rank() + 1) % size_;
    const Work receive = irecv(world, std::span(data), from),
               reduce = world.rank() == 0 ? Work() : all_reduce_async(world, std::span(more));
    if (world.rank() == 0) world.abort(Error{.code = Code::kAborted, .detail = "enough"});
    expect_failure(world, [&] { receive.get(); });
  });
  EXPECT_EQ(expect_one_cause(outcomes, -1), "Aborted: group world, rank 0: enough");
}

// An error of one group leaves the others alone.
TEST_P(Leaving, AbortOfASubGroupEndsThatOnly) {
  const auto outcomes = run_world(way_, size_, [&](Group& world) {
    Group twin = world.split(0, world.rank(), "twin").or_throw();
    if (world.rank() == 0) twin.abort(Error{.code = Code::kAborted, .detail = "enough"});
    const Status status = twin.run({.kind = Kind::kBarrier});
    check(!status.ok() &&
              to_string(status.error()).find("Aborted: group world/twin, rank 0: enough") != std::string::npos,
          status.ok() ? "ok" : to_string(status.error()));
    check(all_reduce(world, 1) == size_, "the world goes on");
  });
  EXPECT_EQ(describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Ways, Leaving, ::testing::Combine(::testing::ValuesIn(all_ways()), ::testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tutti::test
