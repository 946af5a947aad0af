#pragma once
// The method (docs/performance.md): the same as that of the peers, so that the figures may be compared.
#include <functional>
#include <vector>

#include "bench/collectives/operation.h"

namespace tutti::bench {

struct Method {
  int warm_up = 1;  // rounds that count for nothing
  int rounds = 7;
};

struct Figure {
  std::size_t bytes = 0;      // whole vector on a rank
  std::string plan;           // which path the operation took
  double us = 0, us_min = 0;  // median and least of the rounds; a round's figure is the slowest rank's mean
  double p99_us = 0,
         max_us =
             0;  // of single calls on the rank where they are longest, from calls timed one by one after the rounds
  std::size_t wrong = 0;  // elements of the result, on all ranks
};

// 8 B to 16 MB by steps of 8, and 64 MB, as far as they lie in [least, most]; the two ends themselves where they are no
// such size.
std::vector<std::size_t> sizes(std::size_t least, std::size_t most);

// Collective: every rank calls with the same arguments and gets the same figure. `progress` is told how many rounds are
// done. Throws Exception.
Figure measure(const Group& world, Exercise& exercise, const Method& method, const std::function<void(int)>& progress);

// Seconds in which this rank copies `bytes` from one buffer to the other while all ranks do the same: the median of a
// few rounds, the slowest rank's. Collective.
double copy_seconds(const Group& world, std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace tutti::bench
