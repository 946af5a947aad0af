#pragma once
// The agent's standard output or error: a bounded queue that never blocks the agent, and through it never a rank, for
// longer than the stall limit.
//
// Threads: one, the agent's. The descriptor is borrowed and stays blocking (O_NONBLOCK would change it for the shell as
// well).
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/base/deadline.h"

namespace tutti {

struct ConsoleLimits {
  std::size_t queue_bytes = 4 << 20;         // above this the readers pause
  Duration stall = std::chrono::seconds(5);  // no byte taken for this long: lines are dropped and counted
};

class Console {
 public:
  explicit Console(int fd, ConsoleLimits limits = {});

  // Queues a line (the '\n' is added). Dropped, and counted, where the console has stalled or is closed.
  void write_line(std::string_view prefix, std::string_view line);
  void write_raw(std::string_view bytes);

  // For the poll loop: wait for POLLOUT on fd() while wants_write(), then pump(). Also call pump() now and then
  // without: it notices stalls.
  int fd() const { return fd_; }
  bool wants_write() const { return !closed_ && sent_ < queue_.size(); }
  void pump();
  // The queue is full and the console still moves: whoever reads from the ranks should wait. Ends by itself after the
  // stall limit.
  bool congested() const { return !closed_ && !stalled_ && pending() >= limits_.queue_bytes; }
  // Nothing can be written any more; what is queued from now on is discarded.
  bool closed() const { return closed_; }
  // The errno of the write that closed the console, once; then 0. EPIPE: the reader is gone.
  int take_error() { return std::exchange(error_, 0); }
  std::uint64_t dropped_lines() const { return dropped_; }
  // Writes what is queued, until the deadline.
  void drain(Deadline deadline);

 private:
  std::size_t pending() const { return queue_.size() - sent_; }
  bool accepts();

  int fd_;
  ConsoleLimits limits_;
  std::string queue_;
  std::size_t sent_ = 0;
  Clock::time_point last_progress_ = now();
  bool stalled_ = false, closed_ = false;
  int error_ = 0;
  std::uint64_t dropped_ = 0, dropped_in_stall_ = 0;
};

}  // namespace tutti
