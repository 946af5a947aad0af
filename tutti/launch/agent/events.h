#pragma once
// What an event loop of the launcher waits for: descriptors and a time (PollSet), and the user's signals (Signals).
#include <poll.h>

#include <csignal>
#include <functional>
#include <optional>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::launch {

// The descriptors and the time that one turn of the loop waits for. It is filled again for each turn: whatever has
// nothing to wait for now (an empty console queue, a worker whose output must wait) adds nothing.
class PollSet {
 public:
  using Ready = std::function<void()>;

  // wait() calls `ready` if one of `events` (POLLIN, POLLOUT), an error or a hang-up holds. A negative `fd` is not
  // watched. The descriptor is borrowed until wait() returns.
  void watch(int fd, short events, Ready ready);
  // wait() returns at this time at the latest; the earliest time counts.
  void wake_at(Clock::time_point when);
  void wake_after(Duration limit) { wake_at(now() + limit); }

  // Blocks until something is ready, a signal arrives or the time has come. Calls `ready` in the order of watch().
  void wait();

 private:
  std::vector<pollfd> fds_;
  std::vector<Ready> ready_;
  std::optional<Clock::time_point> wake_;
};

// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, and SIGCHLD.
sigset_t signals_of_a_job();
// Every signal of a user except SIGUSR1 and SIGUSR2, whose meaning the ranks choose.
bool asks_for_the_end(int signal);
// Whether such a signal is pending for this thread, which blocks it, and has not been read yet.
bool end_is_asked_for();

// The signals by which a user controls a job, as events of a poll loop.
class Signals {
 public:
  // From now on signals_of_a_job() interrupt neither this thread nor threads that it starts.
  static Result<Signals> take();

  int fd() const { return fd_.get(); }  // readable when a signal has arrived
  // The numbers of the signals that arrived since the last call. Does not block.
  std::vector<int> read();

 private:
  explicit Signals(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

}  // namespace tutti::launch
