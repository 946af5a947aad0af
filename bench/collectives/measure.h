#pragma once
// The method (docs/reference/benchmarks.md): the same as that of the peers, so that the figures may be compared.
#include <functional>
#include <vector>

#include "bench/collectives/operation.h"

namespace tutti::bench {

struct Method {
  int warm_up = 1;  // rounds that count for nothing
  int rounds = 7;
  bool rewrite = false;  // each rank reads and writes its buffer anew before every call, and the group meets in a
                         // barrier after it; neither counts, each call is timed by itself
};

struct Figure {
  std::size_t bytes = 0;                      // whole vector on a rank
  std::string plan;                           // which path the operation took
  double us = 0, us_min = 0;                  // median and least of the rounds' figures: the slowest rank's mean
  double p50_us = 0, p99_us = 0, max_us = 0;  // of calls timed one by one, on the rank where they are longest
  double limit_us = 0;                        // what memory or wire must take (limits.h); 0: no limit known
  double allocations = 0;                     // of memory, in a call: the round with the fewest, the rank with the most
  std::size_t wrong = 0;                      // elements of the result, on all ranks
};

// 8 B to 16 MB by steps of 8, and 64 MB, as far as they lie in [least, most]; the two ends themselves where they are no
// such size.
std::vector<std::size_t> sizes(std::size_t least, std::size_t most);

// Collective: every rank of `world` calls; the groups of the exercises measure at the same time, and a round's figure
// is that of the slowest. A rank that is in none gives a null exercise. bytes and plan are those of this rank's
// exercise, all else is the same on every rank. `progress` is told how many rounds are done. Throws Exception.
Figure measure(const Group& world, Exercise* exercise, const Method& method, const std::function<void(int)>& progress);

}  // namespace tutti::bench
