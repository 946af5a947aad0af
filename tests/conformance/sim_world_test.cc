// Worlds over a modelled network take the time that the network takes. Only bounds from below are held: what a busy
// machine adds is nobody's mistake.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/ranks.h"
#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"
#include "tutti/planning/predict.h"

namespace tutti::test {
namespace {

constexpr int kRanks = 4;
constexpr std::size_t kCount = 1 << 14;

// The least time of a few all_reduces of kCount floats, each rank a host, in seconds.
double least_time(const LinkCost& between) {
  double least = 1e9;
  const auto outcomes =
      run_threads(kRanks,
                  [&](Group& world) {
                    std::vector<float> values(kCount, 1.0f);
                    for (int i = 0; i < 5; ++i) {
                      barrier(world);
                      const auto begin = now();
                      all_reduce(world, std::span(values));
                      if (world.rank() == 0) least = std::min(least, to_seconds(now() - begin));
                    }
                    check(values[0] == 1024.0f, "4 to the power of 5, not ", std::to_string(values[0]));
                  },
                  {.algorithm = "recursive_doubling", .network = ModelledNetwork{.between = between}});
  EXPECT_EQ(describe(outcomes), "");
  return least;
}

TEST(SimWorld, AnAllReduceTakesAsLongAsPredictedAtLeast) {
  const LinkCost between{.latency = 5e-3, .bandwidth = 20e6, .overhead = 0};
  Network network;
  network.between = between;
  const double predicted = predict(Algorithm::kRecursiveDoubling, Kind::kAllReduce, Hosts(std::vector{0, 1, 2, 3}),
                                   kCount * sizeof(float), network);
  // A barrier ends on rank 0 up to two hops after it did elsewhere, and the others may have begun by then.
  EXPECT_GE(least_time(between), predicted - 2 * between.latency);
}

TEST(SimWorld, ATenTimesSlowerNetworkIsSlower) {
  const double fast = least_time({.latency = 1e-3, .bandwidth = 200e6, .overhead = 0});
  const double slow = least_time({.latency = 10e-3, .bandwidth = 20e6, .overhead = 0});
  EXPECT_GT(slow, fast);
}

}  // namespace
}  // namespace tutti::test
