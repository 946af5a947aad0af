#pragma once
// What an event loop of the launcher waits for: descriptors and a time (PollSet), and the user's signals (Signals).
// EndRequests counts the user's requests to end the job.
#include <poll.h>
#include <sys/types.h>

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

// A signal as its receiver sees it. `sender` is a process id, and 0 if the kernel or another pid namespace sent it.
struct ArrivedSignal {
  int number = 0;
  pid_t sender = 0;
  bool operator==(const ArrivedSignal&) const = default;
};

// The signals by which a user controls a job, as events of a poll loop.
class Signals {
 public:
  // From now on signals_of_a_job() interrupt neither this thread nor threads that it starts.
  static Result<Signals> take();

  int fd() const { return fd_.get(); }  // readable when a signal has arrived
  // The signals that arrived since the last call. Does not block.
  std::vector<ArrivedSignal> read();

 private:
  explicit Signals(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

// Distinguishes a new request to end the job from the second copy of one. Slurm with proctrack/linuxproc, systemd and
// pkill signal every process of a job. So the agent gets a request twice: from the sender, and passed on by its
// supervisor. Neither way brings a request twice, so the larger of the two counts is the number of requests. No time
// limit is involved: two quick signals of the user are two requests.
class EndRequests {
 public:
  explicit EndRequests(pid_t supervisor) : supervisor_(supervisor) {}

  // Call for each signal that asks_for_the_end(). Whether it is a new request.
  bool add(pid_t sender);

 private:
  const pid_t supervisor_;
  int passed_on_ = 0, direct_ = 0;  // signals of the supervisor, and of all other senders
  int requests_ = 0;
};

}  // namespace tutti::launch
