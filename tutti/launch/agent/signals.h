#pragma once
// The signals by which a user speaks to a job, as events of a poll loop.
#include <csignal>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, and SIGCHLD.
sigset_t signals_of_a_job();
// All that a user sends but SIGUSR1 and SIGUSR2, which the ranks make of what they will.
bool asks_for_the_end(int signal);

// Whether such a one has come to this thread, which holds them back, and is not read yet.
bool end_is_asked_for();

class Signals {
 public:
  // From now on signals_of_a_job() interrupt nothing in this thread, nor in those that it starts.
  static Result<Signals> take();

  int fd() const { return fd_.get(); }  // readable when one has come
  // Those that have come since the last call, by their numbers. Does not wait.
  std::vector<int> read();

 private:
  explicit Signals(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

}  // namespace tutti
