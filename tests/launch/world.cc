// A rank of a real world: joins through tutti::init() and adds numbers up, for ever or once. argv[1]: "once", "die
// RANK", "heal
// RANK" (which dies in the first attempt only), "deaf", "careless" (no try, as in the first program of the README) or
// "twice" (init() again).
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "once";
  if (mode == "careless") {
    const tutti::Group world = tutti::init();
    return 0;
  }
  try {
    const tutti::Group world = tutti::init();
    std::vector<float> numbers(1000, float(world.rank() + 1));
    tutti::all_reduce(world, std::span<float>(numbers));
    std::printf("rank %d of %d: sum %g\n", world.rank(), world.size(), double(numbers[7]));
    if (mode == "once") return 0;
    if (mode == "heal" && std::getenv("TORCHELASTIC_RESTART_COUNT") != std::string("0")) return 0;
    if (mode == "deaf") {  // it listens once, and never again
      (void)world.should_stop();
      std::printf("listening %d\n", world.rank());
      std::fflush(stdout);
      for (;;) pause();
    }
    if (mode == "twice") (void)tutti::init();
    if (world.rank() == std::atoi(argv[2])) raise(SIGKILL);
    for (;;) tutti::all_reduce(world, std::span<float>(numbers), tutti::ReduceOp::kMax);
  } catch (const tutti::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
