// A rank of a world in which one rank gets into trouble: faulty KIND RANK [NUMBER]. All ranks add numbers up, step by
// step, and say "ready" after the first; after its tenth step RANK does what KIND says. The others go on until they
// fail, and print why. "save": no trouble, and all leave with code 75 when they are told to stop. "slow": each rank
// computes for a millisecond in each step, and RANK for NUMBER.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"

namespace {

constexpr int kGoodSteps = 10;

[[noreturn]] void wait_forever() {
  for (;;) ::pause();
}

[[gnu::noinline]] void get_into_trouble(const std::string& kind, int number) {
  if (kind == "signal") {
    std::signal(number, SIG_DFL);  // a sanitizer would turn it into an exit code
    std::raise(number);
  }
  if (kind == "exit") std::_Exit(number);
  if (kind == "throw") throw std::runtime_error("the loss is not a number");
  if (kind == "stop") std::raise(SIGSTOP);
  if (kind == "spin") {
    static volatile bool done = false;
    while (!done) {
    }
  }
  if (kind == "lock") {
    std::mutex mutex;
    mutex.lock();
    mutex.lock();
  }
  if (kind == "wait") wait_forever();
  if (kind == "memory") {
    for (std::vector<char*> blocks;;) {
      blocks.push_back(new char[1 << 20]);
      std::memset(blocks.back(), 1, 1 << 20);
    }
  }
}

// So much processor time, however long that takes.
void compute(std::chrono::milliseconds time) {
  const std::clock_t end = std::clock() + std::clock_t(time.count() * CLOCKS_PER_SEC / 1000);
  while (std::clock() < end) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "none";
  const int culprit = argc > 2 ? std::atoi(argv[2]) : -1, number = argc > 3 ? std::atoi(argv[3]) : 0;
  const tutti::Group world = tutti::init();
  std::vector<float> numbers(1000);
  try {
    for (int step = 0;; ++step) {
      if (step == kGoodSteps && world.rank() == culprit) get_into_trouble(kind, number);
      world.step(step);
      if (kind == "slow") compute(std::chrono::milliseconds(world.rank() == culprit ? number : 1));
      tutti::all_reduce(world, std::span<float>(numbers));
      const bool stop = kind == "save" && world.should_stop();  // asked once, a signal is a request from here on
      if (step == 0) {
        std::printf("ready %d of %d\n", world.rank(), world.size());
        std::fflush(stdout);
      }
      if (stop) {
        std::printf("saved at step %d\n", step);
        return 75;
      }
      if (kind == "finish" && step == number) return 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  } catch (const tutti::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
