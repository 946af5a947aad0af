// A rank for jobs that go wrong under `tutti run`: adds numbers up until it cannot, prints why, and does not heed
// SIGTERM, so that what it was told can be read however slow the machine is. Arguments: what to do, and which rank does
// it.
//   kill RANK    that rank is killed by SIGKILL
//   stop RANK    that rank stops
//   exit RANK    that rank ends with code 7
//   pair RANK    that rank makes another call
//   idle RANK    that rank says so and calls nothing any more
//   loop         nobody does anything
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"

int main(int argc, char** argv) {
  const std::string deed = argc > 1 ? argv[1] : "loop";
  const int culprit = argc > 2 ? std::atoi(argv[2]) : -1;
  std::signal(SIGTERM, SIG_IGN);
  try {
    const tutti::Group world = tutti::init();
    std::vector<float> numbers(50000, 1.0f);
    const std::span<float> all(numbers);
    for (int i = 0;; ++i) {
      tutti::all_reduce(world, all, tutti::ReduceOp::kMax);
      if (i == 10) std::printf("ready\n"), std::fflush(stdout);
      if (i != 50 || world.rank() != culprit) continue;
      if (deed == "kill") std::raise(SIGKILL);
      if (deed == "stop") std::raise(SIGSTOP);
      if (deed == "exit") std::exit(7);
      if (deed == "pair") tutti::barrier(world);
      if (deed == "idle") {
        std::printf("idle\n"), std::fflush(stdout);
        for (;;) ::pause();
      }
    }
  } catch (const tutti::Exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
