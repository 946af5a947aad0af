#include "tutti/launch/agent/events.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace tutti::launch {
namespace {

constexpr int kOfAJob[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

}  // namespace

void PollSet::watch(int fd, short events, Ready ready) {
  if (fd < 0) return;
  fds_.push_back({fd, events, 0});
  ready_.push_back(std::move(ready));
}

void PollSet::wake_at(Clock::time_point when) { wake_ = wake_ ? std::min(*wake_, when) : when; }

void PollSet::wait() {
  int timeout = -1;
  if (wake_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*wake_ - now()).count();
    timeout = int(std::clamp<std::int64_t>(left, 0, 86400000));
  }
  const int count = poll(fds_.data(), fds_.size(), timeout);
  if (count < 0 && errno != EINTR) std::abort();
  if (count <= 0) return;
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    if (fds_[i].revents) ready_[i]();
  }
}

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

std::vector<ArrivedSignal> Signals::read() {
  std::vector<ArrivedSignal> came;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == ssize_t(sizeof info))
    came.push_back({int(info.ssi_signo), pid_t(info.ssi_pid)});
  return came;
}

bool EndRequests::add(pid_t sender) {
  int& count = sender == supervisor_ ? passed_on_ : direct_;
  if (++count <= requests_) return false;
  requests_ = count;
  return true;
}

}  // namespace tutti::launch
