// A rank that prints must not wait for a pager that was stopped, a full pipe or a terminal with Ctrl-S pressed: its
// peers would wait in a collective, and reading the log would have become a hang. Yet `tutti run ... | gzip` must not
// lose lines only because gzip is slow. So a console that is slow but takes bytes holds the ranks back, as a pipe
// between them would. One that has not taken a byte for the stall limit drops lines, and counts them, until it takes
// bytes again.
//
// One write of at most PIPE_BUF bytes after POLLOUT does not block on a pipe, a terminal or a socket. That needs no
// O_NONBLOCK, which belongs to the open file and would surprise every other process that shares it.
//
// When the reader is gone (`| head` has its lines), the job ends as every member of a pipeline does, unless log files
// keep the output. A full disk must not end a training run, but the exit code reports it.
#include "tutti/launch/output/console.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tutti/base/text.h"
#include "tutti/launch/output/lines.h"

namespace tutti::launch {
namespace {

constexpr auto kStallTurn = std::chrono::milliseconds(500);  // how often a console that takes nothing is checked

constexpr std::string_view kAgentPrefix = "[tutti] ";

}  // namespace

Console::Console(int fd, ConsoleLimits limits) : fd_(fd), limits_(limits) {}

// Whether more may be queued.
bool Console::accepts() {
  if (closed_) return false;
  if (stalled_) {
    ++dropped_, ++dropped_in_stall_;
    return false;
  }
  if (pending() == 0) last_progress_ = now();  // a stall begins with the first byte that waits
  return true;
}

void Console::write_line(std::string_view prefix, std::string_view line) {
  if (!accepts()) return;
  queue_.append(prefix).append(line).push_back('\n');
}

void Console::write_raw(std::string_view bytes) {
  if (accepts()) queue_.append(bytes);
}

void Console::pump() {
  while (wants_write()) {
    pollfd ready{fd_, POLLOUT, 0};
    const int answer = poll(&ready, 1, 0);
    if (answer < 0 && errno == EINTR) continue;
    if (answer == 0) {
      if (!stalled_ && pending() >= limits_.queue_bytes && now() - last_progress_ >= limits_.stall) stalled_ = true;
      return;
    }
    const ssize_t count = write(fd_, queue_.data() + sent_, std::min<std::size_t>(pending(), PIPE_BUF));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) {  // the reader is gone (EPIPE), the terminal hung up (EIO), or the disk is full
      closed_ = true;
      error_ = errno;
      queue_.clear();
      sent_ = 0;
      return;
    }
    sent_ += std::size_t(count);
    last_progress_ = now();
    if (stalled_ && pending() < limits_.queue_bytes / 2) {
      stalled_ = false;
      if (dropped_in_stall_ > 0) {
        queue_ += "[tutti] " + std::to_string(dropped_in_stall_) +
                  " lines were dropped because this output was not read for " +
                  seconds_text(to_seconds(limits_.stall)) + " (hint: --log-dir keeps everything)\n";
      }
      dropped_in_stall_ = 0;
    }
    if (sent_ >= (1 << 20) || sent_ == queue_.size()) {
      queue_.erase(0, sent_);
      sent_ = 0;
    }
  }
}

void Console::drain(Deadline deadline) {
  if (stalled_) return pump();  // it has had the stall limit
  while (wants_write() && !deadline.expired()) {
    pollfd ready{fd_, POLLOUT, 0};
    poll(&ready, 1, deadline.poll_timeout_ms());
    pump();
  }
}

void Consoles::say(const std::string& text) {
  if (!json_) return errors_.write_line(kAgentPrefix, sanitize(text));  // the text may contain names that others chose
  errors_.write_line("", json_line({.line = text}, host_, 0, microseconds_since_epoch()));
}

void Consoles::say_block(const std::string& text) {
  if (!json_) return errors_.write_raw(text + "\n");
  for (const std::string& line : split(text, '\n'))
    say(line.starts_with(kAgentPrefix) ? line.substr(kAgentPrefix.size()) : line);
}

void Consoles::listen(PollSet& events) {
  for (Console* console : {&output_, &errors_}) {
    if (!console->wants_write()) continue;
    events.watch(console->fd(), POLLOUT, [] {});  // pump() follows every turn
    events.wake_after(kStallTurn);
  }
}

void Consoles::pump() {
  output_.pump();
  errors_.pump();
}

bool Consoles::lost_reader(bool running) {
  bool must_end = false;
  for (Console* console : {&output_, &errors_}) {
    const int cause = console->take_error();
    if (cause == 0) continue;
    const std::string which = console == &output_ ? "standard output" : "standard error";
    if (cause != EPIPE) {
      output_lost_ = true;
      say("cannot write to " + which + ": " + std::strerror(cause) + "; the job continues, " +
          (log_dir_.empty() ? "but its output there is lost" : "its output is in " + log_dir_));
    } else if (!log_dir_.empty()) {
      say("the reader of our " + which + " is gone; the job continues, its output is in " + log_dir_);
    } else if (!reader_gone_) {
      reader_gone_ = true;
      say("the reader of our " + which + " is gone" +
          (running ? ": ending the job (hint: with --log-dir it would continue)" : ""));
      must_end = running;
    }
  }
  return must_end;
}

}  // namespace tutti::launch
