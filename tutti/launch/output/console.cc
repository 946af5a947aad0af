// A rank that prints must not wait for a pager that somebody stopped, a full pipe or a terminal with Ctrl-S pressed:
// its peers would wait in a collective, and a look at the log would have become a hang. Yet `tutti run ... | gzip` must
// lose nothing only because gzip is slow. So a console that is slow but moves holds the ranks back, as a pipe between
// them would, and one that has not taken a byte for the stall limit loses lines, with a count, until it moves again.
//
// One write of at most PIPE_BUF bytes after POLLOUT does not block on a pipe, a terminal or a socket, and that without
// O_NONBLOCK, which belongs to the open file and would surprise every other process that shares it.
#include "tutti/launch/output/console.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/text.h"

namespace tutti {

Console::Console(int fd, ConsoleLimits limits) : fd_(fd), limits_(limits) {}

// Whether more may be queued; says what was lost when the console moves again.
bool Console::accepts() {
  if (closed_) return false;
  if (stalled_) {
    ++dropped_, ++dropped_in_stall_;
    return false;
  }
  if (pending() == 0) last_progress_ = now();  // the clock of a stall starts with the first byte that waits
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
    if (count <= 0) {  // the reader is gone (EPIPE), the terminal hung up (EIO), the disk is full: nothing to be said
                       // to it any more
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
                  " lines were dropped because nobody read this output for " + seconds_text(to_seconds(limits_.stall)) +
                  " (hint: --log-dir keeps everything)\n";
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
  if (stalled_) return pump();  // it has had its time
  while (wants_write() && !deadline.expired()) {
    pollfd ready{fd_, POLLOUT, 0};
    poll(&ready, 1, deadline.poll_timeout_ms());
    pump();
  }
}

}  // namespace tutti
