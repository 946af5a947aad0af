// A job in which one rank is killed: the report of `tutti run`, and the errors of the other ranks.
//
//   tutti run -n 2 failure 1      rank 1 kills itself in step 100, as the out-of-memory killer would
//   tutti run -n 2 failure        runs until you kill a rank: kill -9 PID
#include <tutti/core.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const int victim = argc > 1 ? std::atoi(argv[1]) : -1;
  const tutti::Group world = tutti::init();
  std::vector<float> gradients(1000, float(world.rank()));
  for (std::int64_t step = 1;; ++step) {
    world.step(step);  // so that a report names the step
    if (step == 100 && world.rank() == victim) std::raise(SIGKILL);
    tutti::all_reduce(world, std::span<float>(gradients), tutti::ReduceOp::kMax);
  }
}
