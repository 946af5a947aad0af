#include "tutti/launch/agent/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {
namespace {

constexpr int kOfAJob[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

}  // namespace

sigset_t signals_of_a_job() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kOfAJob) sigaddset(&set, signal);
  return set;
}

bool asks_for_the_end(int signal) { return signal != SIGUSR1 && signal != SIGUSR2; }

bool end_is_asked_for() {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int signal : kOfAJob)
    if (signal != SIGCHLD && asks_for_the_end(signal) && sigismember(&waiting, signal) == 1) return true;
  return false;
}

Result<Signals> Signals::take() {
  const sigset_t set = signals_of_a_job();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return system_error(errno, "could not make a signalfd");
  return Signals(std::move(fd));
}

std::vector<int> Signals::read() {
  std::vector<int> came;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == ssize_t(sizeof info)) came.push_back(int(info.ssi_signo));
  return came;
}

}  // namespace tutti
