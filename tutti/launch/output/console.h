#pragma once
// The agent's standard output and standard error. A Console is a bounded queue that never blocks the agent, and so
// never a rank, longer than the stall limit. Consoles are the two of them and what the agent itself prints.
//
// Threads: one, the agent's. The descriptors are borrowed and stay blocking (O_NONBLOCK would change them for the shell
// as well).
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/base/deadline.h"
#include "tutti/launch/agent/events.h"

namespace tutti::launch {

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

  // For the poll loop: wait for POLLOUT on fd() while wants_write(), then pump(). Call pump() regularly even without
  // POLLOUT: it notices stalls.
  int fd() const { return fd_; }
  bool wants_write() const { return !closed_ && sent_ < queue_.size(); }
  void pump();
  // The queue is full and the console still takes bytes: do not read from the ranks. Ends by itself after the stall
  // limit.
  bool congested() const { return !closed_ && !stalled_ && pending() >= limits_.queue_bytes; }
  // Nothing can be written any more; later lines are discarded.
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

// The agent's two consoles, and the lines that the agent itself prints.
class Consoles {
 public:
  // Without a log_dir, what a console drops is lost. `json`: the agent's lines are JSON objects, which name `host`.
  explicit Consoles(std::string log_dir, bool json = false, std::string host = {})
      : log_dir_(std::move(log_dir)), json_(json), host_(std::move(host)) {}

  Console& output() { return output_; }
  Console& errors() { return errors_; }
  // Prints a line on standard error, after "[tutti] ".
  void say(const std::string& text);
  // Prints lines that already begin with "[tutti] ".
  void say_block(const std::string& text);

  void listen(PollSet& events);
  void pump();
  // Reports, once for each, a console that takes nothing any more. Returns true if the job must end because of it: the
  // reader is gone and no log files keep the output. `running`: the job is not ending anyway.
  bool lost_reader(bool running);
  bool reader_gone() const { return reader_gone_; }
  bool output_lost() const { return output_lost_; }

 private:
  std::string log_dir_;
  bool json_ = false;
  std::string host_;
  Console output_{1}, errors_{2};
  bool reader_gone_ = false, output_lost_ = false;
};

}  // namespace tutti::launch
