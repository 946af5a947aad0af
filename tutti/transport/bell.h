#pragma once
// How a rank in shared memory wakes a peer that has gone to sleep. Ranks spin and yield first; only an engine thread sleeps,
// in epoll, with an eventfd as its bell. Before sleeping it sets `asleep` and looks once more at what it waits for; who
// changes shared memory rings afterwards. The two fences make one of them see the other.
#include <sys/eventfd.h>

#include <atomic>
#include <cstdint>

namespace tutti {

struct alignas(128) BellLine {  // in shared memory, one a rank, written by its owner
  std::atomic<std::uint32_t> asleep{0};
};

// A peer's bell. Does not own the descriptor.
class Bell {
 public:
  Bell() = default;
  Bell(BellLine* line, int event_fd) : line_(line), event_fd_(event_fd) {}
  // After the store that the peer may be waiting for.
  void ring() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (line_->asleep.load(std::memory_order_relaxed) != 0) ring_awake();
  }
  void ring_awake() const { (void)::eventfd_write(event_fd_, 1); }

 private:
  BellLine* line_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace tutti
