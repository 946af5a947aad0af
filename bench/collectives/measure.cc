// A round is many calls in a row between two looks at the clock, so that what is measured is the rate at which calls
// follow one another; that is what the peers measure. A clock read costs a sixth of an 8-byte all_reduce, so single
// calls are timed apart, after the rounds, for the percentiles only.
//
// Results are checked before the rounds and after them: buffers, caches and the library's own state differ by then.
#include "bench/collectives/measure.h"

#include <algorithm>
#include <limits>

#include "bench/collectives/allocations.h"
#include "bench/collectives/statistics.h"
#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"

namespace tutti::bench {
namespace {

// The peers' counts.
int calls_in_a_round(std::size_t bytes, int ranks) {
  const int calls = bytes <= 4096 ? 1000 : bytes <= 262144 ? 100 : bytes <= (std::size_t(4) << 20) ? 10 : 2;
  return ranks > 2 ? std::min(calls, 100) : calls;
}

constexpr double kSecondsForPercentiles = 0.2;
constexpr int kFewestTimedCalls = 20, kMostTimedCalls = 2000;

double most(const Group& world, double mine) {
  all_reduce(world, std::span(&mine, 1), ReduceOp::kMax);
  return mine;
}

std::int64_t wrong_of_one_call(Exercise& exercise) {
  exercise.write_pattern();
  barrier(exercise.group());
  exercise.call();
  return std::int64_t(exercise.count_wrong());
}

double one_call(Exercise& exercise, bool rewrite) {
  if (rewrite) {
    exercise.rewrite();
    barrier(exercise.group());
  }
  const auto begin = now();
  exercise.call();
  return seconds_since(begin);
}

double mean_of_a_round(Exercise& exercise, int calls, bool rewrite) {
  if (rewrite) {
    double sum = 0;
    for (int i = 0; i < calls; ++i) sum += one_call(exercise, rewrite);
    return sum / calls;
  }
  const auto begin = now();
  for (int i = 0; i < calls; ++i) exercise.call();
  return seconds_since(begin) / calls;
}

// `expected`: seconds of one call, the same on every rank.
void time_single_calls(const Group& world, Exercise* exercise, bool rewrite, double expected, Figure& figure) {
  const int calls =
      int(std::clamp(kSecondsForPercentiles / (expected + 1e-9), double(kFewestTimedCalls), double(kMostTimedCalls)));
  std::vector<double> seconds(std::size_t(calls), 0.0);
  barrier(world);
  if (exercise)
    for (double& s : seconds) s = one_call(*exercise, rewrite);
  std::sort(seconds.begin(), seconds.end());
  double longest[] = {percentile(seconds, 0.5), percentile(seconds, 0.99), seconds.back()};
  all_reduce(world, std::span<double>(longest), ReduceOp::kMax);
  figure.p50_us = longest[0] * 1e6, figure.p99_us = longest[1] * 1e6, figure.max_us = longest[2] * 1e6;
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

Figure measure(const Group& world, Exercise* exercise, const Method& method, const std::function<void(int)>& progress) {
  Figure figure;
  if (exercise) figure.bytes = exercise->bytes(), figure.plan = exercise->plan_name();
  std::int64_t wrong = exercise ? wrong_of_one_call(*exercise) : 0;

  std::vector<double> seconds;
  double fewest = std::numeric_limits<double>::infinity();
  for (int round = -method.warm_up; round < method.rounds; ++round) {
    progress(round + method.warm_up);
    if (exercise) exercise->write_zeros();
    barrier(world);
    const int calls = exercise ? calls_in_a_round(exercise->bytes(), exercise->group().size()) : 0;
    const std::uint64_t allocated = allocations();
    const double mine = exercise ? mean_of_a_round(*exercise, calls, method.rewrite) : 0;
    if (round >= 0 && calls > 0) fewest = std::min(fewest, double(allocations() - allocated) / calls);
    const double mean = most(world, mine);
    if (round >= 0) seconds.push_back(mean);
  }
  figure.allocations = most(world, exercise ? fewest : 0);
  const double typical = median(seconds);
  figure.us = typical * 1e6;
  figure.us_min = *std::min_element(seconds.begin(), seconds.end()) * 1e6;
  time_single_calls(world, exercise, method.rewrite, typical, figure);
  if (exercise) wrong += wrong_of_one_call(*exercise);
  figure.wrong = std::size_t(all_reduce(world, wrong));
  return figure;
}

}  // namespace tutti::bench
