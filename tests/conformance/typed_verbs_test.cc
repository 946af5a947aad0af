// The typed verbs of comm/collectives.h: the asynchronous forms, all in flight at once, give what the blocking ones
// give, and spans whose sizes do not fit are refused before anything is sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

TEST(TypedVerbs, AsynchronousFormsInFlightTogether) {
  const auto body = [](Group& world) {
    const int n = world.size(), me = world.rank();
    const auto each = [&](int factor) {  // rank r's part for rank k: factor * (10 * r + k)
      std::vector<double> v(n);
      for (int k = 0; k < n; ++k) v[k] = factor * (10 * me + k);
      return v;
    };
    const double mine = me + 1;
    const std::span<const double> one(&mine, 1);
    double sum = mine, reduced = 0, told = me == 1 ? 5 : 0, dealt = 0, scattered = 0;
    std::vector<double> all(n), gathered(n), exchanged(n), uneven_in, uneven_out;
    const auto parts = each(1), dealing = each(100);
    std::vector<std::size_t> in_splits, out_splits;  // rank r gives k elements to rank k
    for (int k = 0; k < n; ++k) {
      in_splits.push_back(std::size_t(k));
      out_splits.push_back(std::size_t(me));
      uneven_in.insert(uneven_in.end(), std::size_t(k), me);
    }
    uneven_out.resize(std::size_t(n) * std::size_t(me));
    const std::vector<Work> works = {
        all_reduce_async(world, std::span(&sum, 1)),
        reduce_async(world, one, std::span(&reduced, 1), 0),
        broadcast_async(world, std::span(&told, 1), 1),
        all_gather_async(world, one, std::span(all)),
        gather_async(world, one, std::span(gathered), 1),
        scatter_async(world, std::span<const double>(dealing), std::span(&dealt, 1), 0),
        reduce_scatter_async(world, std::span<const double>(parts), std::span(&scattered, 1)),
        all_to_all_async(world, std::span<const double>(parts), std::span(exchanged)),
        all_to_all_async(world, std::span<const double>(uneven_in), std::span<const std::size_t>(in_splits),
                         std::span(uneven_out), std::span<const std::size_t>(out_splits)),
        barrier_async(world),
    };
    for (const Work& work : works) work.get();
    const double total = n * (n + 1) / 2.0;
    check(sum == total, "all_reduce gives ", sum);
    check(me != 0 || reduced == total, "reduce gives ", reduced);
    check(told == 5, "broadcast gives ", told);
    check(dealt == 100.0 * me, "scatter gives ", dealt);
    check(scattered == 10 * n * (n - 1) / 2.0 + n * me, "reduce_scatter gives ", scattered);
    for (int r = 0; r < n; ++r) {
      check(all[r] == r + 1, "all_gather gives ", all[r], " of rank ", r);
      check(me != 1 || gathered[r] == r + 1, "gather gives ", gathered[r], " of rank ", r);
      check(exchanged[r] == 10 * r + me, "all_to_all gives ", exchanged[r], " of rank ", r);
      for (int i = 0; i < me; ++i)
        check(uneven_out[r * me + i] == r, "the uneven all_to_all gives ", uneven_out[r * me + i]);
    }
  };
  for (const int size : {2, 3, 4}) {
    EXPECT_EQ(describe(run_threads(size, body)), "");
    EXPECT_EQ(describe(run_processes(size, body)), "");
  }
}

TEST(TypedVerbs, SizesThatDoNotFitAreRefused) {
  const auto message = [](const std::function<void(const Group&)>& call) {
    std::string text;
    const auto outcomes = run_threads(2, [&](Group& world) {
      try {
        call(world);
      } catch (const Exception& error) {
        if (world.rank() == 0) text = error.what();
        return;
      }
      check(false, "nothing was thrown");
    });
    EXPECT_EQ(describe(outcomes), "");
    return text;
  };
  std::vector<float> three(3), four(4);
  const std::span<const float> in(three);
  const std::span<float> out(four);
  const std::vector<std::size_t> ones = {1, 1}, twos = {2, 2};
  EXPECT_THAT(message([&](const Group& g) { all_gather(g, in, out); }), HasSubstr("out has 4 elements, expected 6"));
  EXPECT_THAT(message([&](const Group& g) { reduce_scatter(g, in, out); }), HasSubstr("in has 3 elements, expected 8"));
  EXPECT_THAT(message([&](const Group& g) { all_to_all(g, in, out); }), HasSubstr("expected equal multiples of 2"));
  EXPECT_THAT(message([&](const Group& g) { reduce(g, in, out, g.rank()); }),
              HasSubstr("out has 4 elements on the root"));
  EXPECT_THAT(message([&](const Group& g) {
                all_to_all(g, in, std::span<const std::size_t>(ones), out, std::span<const std::size_t>(twos));
              }),
              HasSubstr("in has 3 elements, in_splits sum up to 2"));
}

// While one thread is in the middle of a call, another submits the next one: it waits for its turn.
TEST(Threads, ACallSubmittedDuringAnotherWaitsForItsTurn) {
  constexpr std::size_t kCount = 1 << 16;
  const auto body = [](Group& world) {
    const auto first = world.allocate_array<float>(kCount), second = world.allocate_array<float>(kCount);
    for (int i = 0; i < 100; ++i) {
      std::fill_n(first.get(), kCount, 1.0f);
      std::fill_n(second.get(), kCount, 1.0f);
      barrier(world);
      if (world.rank() == 0) {
        std::thread other([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(10 * (i % 20)));
          all_reduce_async(world, std::span(second.get(), kCount)).get();
        });
        all_reduce(world, std::span(first.get(), kCount));
        other.join();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        all_reduce(world, std::span(first.get(), kCount));
        all_reduce(world, std::span(second.get(), kCount));
      }
      for (std::size_t k = 0; k < kCount; ++k)
        check(first[k] == 2 && second[k] == 2, "element ", k, " of round ", i, " is ", first[k], " and ", second[k]);
    }
  };
  EXPECT_EQ(describe(run_threads(2, body)), "");
  EXPECT_EQ(describe(run_threads(2, body, {.algorithm = "ring"})), "");
}

TEST(EmptyGroup, SaysThatThisRankIsNoMember) {
  const auto body = [](Group& world) {
    const std::vector<int> members = {0};
    const Group sub = world.new_group(members).or_throw();
    check(bool(sub) == (world.rank() == 0) && sub.size() == (world.rank() == 0 ? 1 : 0), "who is a member?");
    if (world.rank() == 0) return;
    float one = 1;
    try {
      all_reduce(sub, std::span(&one, 1));
    } catch (const Exception& error) {
      check(std::string(error.what()).find("this rank is not in the group") != std::string::npos, error.what());
      return;
    }
    check(false, "nothing was thrown");
  };
  EXPECT_EQ(describe(run_threads(2, body)), "");
}

TEST(Overlap, OnlyTheRanksOwnPartIsInPlace) {
  const auto error_of = [](const Group& g, const Request& r) {
    const Status status = g.run(r);
    return status.ok() ? std::string() : to_string(status.error());
  };
  const auto body = [&](Group& world) {
    const int me = world.rank();
    float all[4] = {1, 2, 3, 4};
    const auto request = [&](Kind kind, int in, int out, std::size_t count) {
      return Request{.kind = kind, .dtype = DType::kF32, .in = all + in, .out = all + out, .count = count};
    };
    const auto wrong = [&](const Request& r, const std::string& words) {
      check(error_of(world, r).find(words) != std::string::npos, to_string(r), " says ", error_of(world, r));
    };
    wrong(request(Kind::kAllReduce, 0, 1, 2), "overlap in part");
    wrong(request(Kind::kReduceScatter, 0, 2 - 2 * me, 2), "not this rank's part");
    wrong(request(Kind::kAllGather, 2 - 2 * me, 0, 2), "not this rank's part");
    const std::size_t splits[] = {1, 1};
    Request uneven = request(Kind::kAllToAll, 0, 0, 0);
    uneven.in_splits = uneven.out_splits = splits;
    wrong(uneven, "cannot be in place");
    wrong(request(Kind::kAllReduce, 0, 0, std::size_t(1) << 60), "more than any memory holds");
    check(error_of(world, request(Kind::kAllGather, 2 * me, 0, 2)).empty(), "all_gather in place fails");
    check(error_of(world, request(Kind::kReduceScatter, 0, 2 * me, 2)).empty(), "reduce_scatter in place fails");
  };
  EXPECT_EQ(describe(run_threads(2, body)), "");
}

TEST(Memory, OfGroupsThatAllHaveLeftServesLaterOnes) {
  const auto body = [](Group& world) {
    std::vector<float> private_memory(5000, 1.0f);
    const auto resident = [] {
      std::ifstream file("/proc/self/status");
      for (std::string line; std::getline(file, line);)
        if (line.starts_with("RssShmem:")) return std::stoul(line.substr(9));
      return 0ul;
    };
    unsigned long before = 0;
    for (int i = 0; i < 300; ++i) {
      const Group sub = world.split(0, 0).or_throw();
      all_reduce(sub, std::span(private_memory));
      float number = 1;
      if (sub.rank() == 0) send(sub, std::span<const float>(&number, 1), 1);
      if (sub.rank() == 1) recv(sub, std::span(&number, 1), 0);
      if (i == 50) before = resident();
    }
    check(resident() < before + 20000, "from ", before, " to ", resident(), " KiB of shared memory in 250 groups");
  };
  EXPECT_EQ(describe(run_processes(2, body)), "");
}

// A child of fork() that goes through its destructors neither hangs nor makes the peers believe that its parent has
// left.
TEST(Fork, AChildThatReturnsLeavesTheWorldAlone) {
  const auto body = [](Group& world) {
    auto copy = std::make_unique<Group>(world);
    const pid_t child = ::fork();
    if (child == 0) {
      copy.reset();
      world = Group();
      ::_exit(0);
    }
    int status = -1;
    check(::waitpid(child, &status, 0) == child && status == 0, "the child ends with status ", status);
    barrier(world);
  };
  EXPECT_EQ(describe(run_processes(2, body)), "");
}

}  // namespace
}  // namespace tutti::test
