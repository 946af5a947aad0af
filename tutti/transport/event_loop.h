#pragma once
// A thin loop over epoll: descriptors with a callback each, timers, and a bell that other threads ring.
// Threads: wake() may be called from any thread; everything else from the one thread that runs the loop.
#include <sys/epoll.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::transport {

class EventLoop {
 public:
  using Ready = std::function<void(std::uint32_t events)>;  // EPOLLIN | EPOLLOUT | EPOLLHUP | ...
  using Timer = std::pair<Clock::time_point, std::uint64_t>;

  static Result<std::unique_ptr<EventLoop>> create();

  // Calls `ready` whenever one of `events` (level-triggered; errors and hang-ups always count) holds for `fd`. The
  // loop does not own the descriptor: remove() it before it is closed. A callback may add, modify and remove any
  // descriptor, its own included; events already gathered for a removed descriptor are dropped.
  Status add(int fd, std::uint32_t events, Ready ready);
  Status modify(int fd, std::uint32_t events);
  void remove(int fd);

  // Calls `due` once, at or soon after `when`.
  Timer at(Clock::time_point when, std::function<void()> due);
  void cancel(const Timer& timer);  // harmless if it has fired

  // Makes a run_once() that waits, or else the next one, return after its callbacks.
  void wake();

  // Waits for events, a timer or wake(), at most `timeout` (none: no limit of its own), and runs what is due.
  Status run_once(std::optional<Duration> timeout = std::nullopt);

 private:
  struct Entry {
    std::uint32_t stamp;  // distinguishes this registration from an earlier one of the same descriptor number
    Ready ready;
  };

  EventLoop() = default;
  int wait_ms(std::optional<Duration> timeout) const;
  void run_timers();

  Fd epoll_;
  Fd bell_;
  std::uint32_t next_stamp_ = 1;
  std::uint64_t next_timer_ = 1;
  std::unordered_map<int, std::shared_ptr<Entry>> entries_;
  std::map<Timer, std::function<void()>> timers_;
};

}  // namespace tutti::transport
