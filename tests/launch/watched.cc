// A rank that tells its steps, makes a call in each, and then does what argv[1] says: "end", "crash RANK", "throw
// RANK", "loop RANK" (for ever, in no call), "slow RANK" (a while in each step), "run" (for ever, in good order), "core
// RANK FILE" (that rank crashes and takes a while to be dead; the others end with 3 as soon as it has begun to),
// "killed RANK" (the others end two seconds later, whatever they are asked).
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"

namespace {

volatile bool forever = true;
struct sigaction before_slow_death;
const char* death_mark = nullptr;
// As a rank that writes a large core file: what tutti does at a fatal signal is done, and the end comes later.
void die_slowly(int signal, siginfo_t* info, void* context) {
  before_slow_death.sa_sigaction(signal, info, context);
  ::close(::open(death_mark, O_WRONLY | O_CREAT, 0600));
  ::sleep(1);
  ::signal(SIGSEGV, SIG_DFL);
  ::raise(SIGSEGV);
}

}  // namespace

// Not inlined, so that a stack tells them.
__attribute__((noinline, no_sanitize("address", "undefined"))) void crash_in_a_function(volatile int* nowhere) {
  *nowhere = 1;
}
__attribute__((noinline)) void loop_in_a_function() {
  while (forever) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "end";
  const tutti::Group world = tutti::init();
  const bool chosen = argc > 2 && std::atoi(argv[2]) == world.rank();
  std::vector<float> numbers(1000, 1.0f);
  for (int step = 100; step < 105 || mode == "run" || mode == "slow"; ++step) {
    world.step(step);
    if (mode == "slow" && chosen) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (mode == "run") std::this_thread::sleep_for(std::chrono::milliseconds(5));
    tutti::all_reduce(world, std::span<float>(numbers), tutti::ReduceOp::kMax);
    if (step == 104) {
      std::printf("five steps\n");
      std::fflush(stdout);
    }
  }
  if (mode == "end") return 0;
  if (chosen && mode == "crash") crash_in_a_function(nullptr);
  if (mode == "killed") {
    if (chosen) std::raise(SIGKILL);
    std::signal(SIGTERM, SIG_IGN);
    ::sleep(2);
    return 3;
  }
  if (chosen && mode == "throw") throw std::runtime_error("the loss is NaN");
  if (chosen && mode == "loop") loop_in_a_function();
  if (mode == "core") {
    death_mark = argv[3];
    if (chosen) {
      struct sigaction slow {};
      slow.sa_sigaction = die_slowly;
      slow.sa_flags = SA_SIGINFO | SA_NODEFER;
      ::sigaction(SIGSEGV, &slow, &before_slow_death);
      crash_in_a_function(nullptr);
    }
    while (::access(death_mark, F_OK) != 0) ::usleep(1000);
    ::_exit(3);
  }
  tutti::all_reduce(world, std::span<float>(numbers));
  return 0;
}
