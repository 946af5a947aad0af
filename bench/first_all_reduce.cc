// How long after its start a job has done its first collective: for bench/startup, which puts the time of
// CLOCK_MONOTONIC at which it started `tutti run` into BENCH_STARTED (seconds). Rank 0 prints the slowest rank's
// milliseconds.
#include <cstdio>
#include <cstdlib>

#include "tutti/core.h"

int main() {
  const char* started = std::getenv("BENCH_STARTED");
  if (!started) return std::fputs("first_all_reduce: BENCH_STARTED is not set; run bench/startup\n", stderr), 2;
  const tutti::Group world = tutti::init();
  tutti::all_reduce(world, 1);
  const double finished = tutti::to_seconds(tutti::now().time_since_epoch());  // steady_clock is CLOCK_MONOTONIC
  double milliseconds = (finished - std::atof(started)) * 1e3;
  tutti::all_reduce(world, std::span(&milliseconds, 1), tutti::ReduceOp::kMax);
  if (world.rank() == 0) std::printf("%.3f\n", milliseconds);
}
