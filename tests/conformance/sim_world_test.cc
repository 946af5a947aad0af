// Worlds over a modelled network take the time that the network takes. Only bounds from below are held: what a busy
// machine adds is nobody's mistake.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/ranks.h"
#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/plans/predict.h"

namespace tutti::test {
namespace {

constexpr int kRanks = 4, kCalls = 5;
constexpr std::size_t kCount = 1024;

// The least time of a few all_reduces of kCount floats, each rank a host, in seconds: from when the last rank has begun
// until the last one has ended. What that rank gives has to reach all others in this time, whoever was late.
double least_time(const LinkCost& between) {
  Clock::time_point begun[kCalls][kRanks], ended[kCalls][kRanks];
  const auto outcomes =
      run_threads(kRanks,
                  [&](Group& world) {
                    std::vector<float> values(kCount, 1.0f);
                    for (int call = 0; call < kCalls; ++call) {
                      begun[call][world.rank()] = now();
                      all_reduce(world, std::span(values));
                      ended[call][world.rank()] = now();
                    }
                    check(values[0] == 1024.0f, "4 to the power of 5, not ", std::to_string(values[0]));
                  },
                  {.algorithm = "recursive_doubling", .network = ModelledNetwork{.between = between}});
  EXPECT_EQ(describe(outcomes), "");
  double least = 1e9;
  for (int call = 0; call < kCalls; ++call)
    least =
        std::min(least, to_seconds(*std::ranges::max_element(ended[call]) - *std::ranges::max_element(begun[call])));
  return least;
}

TEST(SimWorld, AnAllReduceTakesAsLongAsPredictedAtLeast) {
  Network network;
  network.between = {.latency = 5e-3, .bandwidth = 2e6, .overhead = 0};
  const double predicted = predict(comm::Algorithm::kRecursiveDoubling, Kind::kAllReduce,
                                   comm::Hosts(std::vector{0, 1, 2, 3}), kCount * sizeof(float), network);
  EXPECT_GT(predicted, 2 * 0.007) << "two hops";
  EXPECT_GE(least_time(network.between), predicted * 0.99) << "additions may be faster than was assumed";
}

TEST(SimWorld, AFiftyTimesSlowerNetworkIsSlower) {
  const double fast = least_time({.latency = 1e-3, .bandwidth = 20e6, .overhead = 0});
  const double slow = least_time({.latency = 50e-3, .bandwidth = 0.4e6, .overhead = 0});
  EXPECT_GT(slow, fast);
}

}  // namespace
}  // namespace tutti::test
