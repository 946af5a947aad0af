// A round is many calls in a row between two looks at the clock, so that what is measured is the rate at which calls
// follow one another; that is what the peers measure. A clock read costs a sixth of an 8-byte all_reduce, so single
// calls are timed apart, after the rounds, for the percentiles only.
#include "bench/collectives/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"

namespace tutti::bench {
namespace {

// The peers' counts.
int calls_in_a_round(std::size_t bytes, int ranks) {
  const int calls = bytes <= 4096 ? 1000 : bytes <= 262144 ? 100 : bytes <= (std::size_t(4) << 20) ? 10 : 2;
  return ranks > 2 ? std::min(calls, 100) : calls;
}

constexpr double kSecondsForPercentiles = 0.5;
constexpr int kFewestTimedCalls = 20, kMostTimedCalls = 2000;

double slowest(const Group& world, double mine) {
  all_reduce(world, std::span(&mine, 1), ReduceOp::kMax);
  return mine;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void time_single_calls(const Group& world, const Exercise& exercise, Figure& figure) {
  const int calls = int(std::clamp(kSecondsForPercentiles / (figure.us * 1e-6 + 1e-9), double(kFewestTimedCalls),
                                   double(kMostTimedCalls)));
  std::vector<double> seconds(calls);
  barrier(world);
  for (double& s : seconds) {
    const auto begin = now();
    exercise.call();
    s = seconds_since(begin);
  }
  std::sort(seconds.begin(), seconds.end());
  const std::size_t rank99 = std::size_t(std::ceil(0.99 * calls)) - 1;
  figure.p99_us = slowest(world, seconds[rank99]) * 1e6;
  figure.max_us = slowest(world, seconds.back()) * 1e6;
}

}  // namespace

std::vector<std::size_t> sizes(std::size_t least, std::size_t most) {
  std::vector<std::size_t> all = {least, most};
  for (std::size_t bytes = 8; bytes <= most; bytes = bytes == std::size_t(16) << 20 ? std::size_t(64) << 20 : bytes * 8)
    if (bytes > least && bytes < most) all.push_back(bytes);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Figure measure(const Group& world, Exercise& exercise, const Method& method, const std::function<void(int)>& progress) {
  Figure figure{.bytes = exercise.bytes(), .plan = exercise.plan_name()};
  exercise.write_pattern();
  barrier(world);
  exercise.call();
  figure.wrong = std::size_t(all_reduce(world, std::int64_t(exercise.count_wrong())));

  const int calls = calls_in_a_round(exercise.bytes(), world.size());
  std::vector<double> seconds;
  for (int round = -method.warm_up; round < method.rounds; ++round) {
    progress(round + method.warm_up);
    exercise.write_zeros();
    barrier(world);
    const auto begin = now();
    for (int i = 0; i < calls; ++i) exercise.call();
    const double mean = slowest(world, seconds_since(begin) / calls);
    if (round >= 0) seconds.push_back(mean);
  }
  figure.us = median(seconds) * 1e6;
  figure.us_min = *std::min_element(seconds.begin(), seconds.end()) * 1e6;
  time_single_calls(world, exercise, figure);
  return figure;
}

double copy_seconds(const Group& world, std::byte* to, const std::byte* from, std::size_t bytes) {
  const int calls = calls_in_a_round(bytes, world.size());
  std::vector<double> seconds;
  for (int round = 0; round < 5; ++round) {
    barrier(world);
    const auto begin = now();
    for (int i = 0; i < calls; ++i) {
      std::memcpy(to, from, bytes);
      __asm__ volatile("" : : "r"(to) : "memory");  // the copy must happen each time
    }
    seconds.push_back(slowest(world, seconds_since(begin) / calls));
  }
  return median(seconds);
}

}  // namespace tutti::bench
