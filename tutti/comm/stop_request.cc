// The signal handler only records the request. A scheduler that ends a job often sends the signal to every process of
// the job, so a rank gets it twice: from the scheduler and from its agent. Two signals within a second are one request.
#include "tutti/comm/stop_request.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <mutex>

#include "tutti/comm/collectives.h"
#include "tutti/comm/group.h"
#include "tutti/comm/group/group_state.h"

namespace tutti {
namespace {

constexpr std::int64_t kOneWish = 1'000'000'000;  // nanoseconds

std::atomic<int> requested{0};
std::atomic<std::int64_t> requested_at{0};
std::atomic<bool> leaves_at_the_second{false};

std::int64_t nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void on_signal(int signal) {
  if (requested.load() != 0 && leaves_at_the_second.load() && nanoseconds() - requested_at.load() > kOneWish)
    ::_exit(128 + signal);
  request_stop(signal);
}

bool is_the_programs(int signal) {
  struct sigaction before {};
  return sigaction(signal, nullptr, &before) != 0 || (before.sa_flags & SA_SIGINFO) != 0 ||
         before.sa_handler != SIG_DFL;
}

}  // namespace

void listen_for_stop(bool has_agent) {
  static std::once_flag once;
  std::call_once(once, [&] {
    leaves_at_the_second = !has_agent;
    for (const int signal : {SIGTERM, SIGUSR1}) {
      if (is_the_programs(signal)) continue;
      struct sigaction action {};
      action.sa_handler = on_signal;
      action.sa_flags = SA_RESTART;
      sigemptyset(&action.sa_mask);
      sigaction(signal, &action, nullptr);
    }
  });
}

void listen_for_stop(const Group& world) { listen_for_stop(world.state().process().launcher != nullptr); }

void request_stop(int signal) {
  int none = 0;
  if (requested.compare_exchange_strong(none, signal)) requested_at = nanoseconds();
}

int stop_requested() { return requested.load(); }

// The largest signal number wins. Which one is irrelevant, as long as all ranks see one in the same call.
bool Group::should_stop(CallSite at) const {
  listen_for_stop(*this);
  const comm::Process& process = state().process();
  int wish = stop_requested();
  if (wish == 0 && process.page) wish = process.page->stop_request();
  if (size() == 1) return wish != 0;
  all_reduce(*this, std::span<int>(&wish, 1), ReduceOp::kMax, at);
  return wish != 0;
}

}  // namespace tutti
