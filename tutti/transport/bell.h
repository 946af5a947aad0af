#pragma once
// How a rank in shared memory wakes a peer that has gone to sleep. Ranks spin and yield first; only a progress
// thread sleeps, with an eventfd as its bell. It sets `asleep`, checks once more what it waits for, and sleeps; a rank
// that changes shared memory checks `asleep` afterwards. Each side must see the other's store, which takes a full fence
// on both sides, and the one in ring() would stand in every operation, waiting for the store before it to leave for the
// other core: half of a small all_reduce. So the sleeper pays for both: membarrier(2) makes every running thread of the
// registered processes pass a fence. Where a rank of the host cannot register, ring() fences (`fence`).
#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace tutti::transport {

struct alignas(128) BellLine {  // in shared memory, one a rank, written by its owner
  std::atomic<std::uint32_t> asleep{0};
  std::atomic<std::uint32_t> fence{1};       // 1: a rank that rings must fence first
  std::atomic<std::uint32_t> registered{0};  // 1: the owner can be fenced by membarrier
};

// Lets other processes fence this one. Whether the system can.
inline bool register_for_fences() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}
// After setting `asleep`, before the last check. Fences this thread, and, where registered, all threads of registered
// processes.
inline void fence_everybody(bool registered) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (registered) (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

// A peer's bell. Does not own the descriptor.
class Bell {
 public:
  Bell() = default;
  Bell(BellLine* line, int event_fd) : line_(line), event_fd_(event_fd) {}
  // After the store that the peer may be waiting for.
  void ring() const {
    if (line_->fence.load(std::memory_order_relaxed) != 0) std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (line_->asleep.load(std::memory_order_relaxed) != 0) ring_awake();
  }
  void ring_awake() const { (void)::eventfd_write(event_fd_, 1); }

 private:
  BellLine* line_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace tutti::transport
