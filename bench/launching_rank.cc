// A rank for bench/launching: launching_rank KIND [NUMBER]. Times are those of CLOCK_MONOTONIC, in seconds.
//   steps MIB   steps for ever, with MIB of memory in use; says "ready", and when a call fails "failed TIME: why"
//   again       the first time rank 1 says "dies TIME" and kills itself after a few steps; then rank 0 says "stepped
//               TIME" after the first one, and all end
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tutti/core.h"

namespace {

constexpr int kSteps = 20;

void say(const char* what, const char* more = "") {
  std::printf("%s %.6f%s\n", what, tutti::to_seconds(tutti::now().time_since_epoch()), more);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "steps";
  const std::size_t megabytes = argc > 2 ? std::size_t(std::atoi(argv[2])) : 0;
  std::vector<char> memory(megabytes << 20, 1);
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const bool first = !restarts || std::strcmp(restarts, "0") == 0;
  try {
    const tutti::Group world = tutti::init();
    std::vector<float> numbers(1000, 1.0f);
    for (int step = 0;; ++step) {
      world.step(step);
      tutti::all_reduce(world, std::span(numbers), tutti::ReduceOp::kMax);
      if (kind == "steps" && step == 0) say("ready");
      if (kind == "again" && !first) {
        if (world.rank() == 0) say("stepped");
        return 0;
      }
      if (kind == "again" && step == kSteps && world.rank() == 1) {
        say("dies");
        std::raise(SIGKILL);
      }
    }
  } catch (const tutti::Exception& error) {
    say("failed", (std::string(": ") + error.what()).c_str());
    return 1;
  }
}
