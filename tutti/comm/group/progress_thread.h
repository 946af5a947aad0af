#pragma once
// One thread a process that drives what nobody else is driving, sleeps when all are blocked, and watches the peers.
// Threads: the public calls from any but its own; the rest is its own.
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/operation.h"
#include "tutti/transport/shm/host.h"

namespace tutti {

class GroupState;

class ProgressThread {
 public:
  // Another descriptor to poll, and what to do when it can be read; returns whether to go on watching. That is how a
  // fault of the job arrives through the store, and SIGUSR2.
  struct Watched {
    int fd;
    std::function<bool()> on_ready;
  };
  // `host` may be null (no peers on this host).
  static Result<std::unique_ptr<ProgressThread>> create(Host* host, std::vector<Watched> watched);
  ~ProgressThread();

  // The group has operations pending.
  void activate(std::shared_ptr<GroupState> group);
  // The group has none, and is about to go: returns when the engine holds no reference to it, which takes one turn.
  void forget(const GroupState* group);
  // Looks again at all pending operations.
  void notify();
  void stop();

 private:
  ProgressThread(Host* host, std::vector<Watched> watched);  // throws
  void reserve();                                            // before the thread
  void run();
  bool drive_all();
  bool awaits_much();
  void sleep();
  void add_watched();                  // to polled_
  void act_on(const pollfd* watched);  // as add_watched() gave them, polled

  Host* host_;
  std::vector<Watched> watched_;  // the engine's own
  Fd own_bell_;                   // where there is no host
  int bell_fd_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> sleeping_{false};
  Mutex mutex_;
  std::condition_variable_any forgot_;
  std::vector<std::shared_ptr<GroupState>> fresh_ TUTTI_GUARDED_BY(mutex_);
  std::vector<const GroupState*> to_forget_ TUTTI_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<GroupState>> active_;  // the engine's own
  // The engine's own, of one sleep; kept, so that sleeping allocates nothing.
  Blockers blockers_;
  std::vector<pollfd> polled_;
  std::vector<int> peers_;  // local ranks
  std::thread thread_;
};

// How long to try before giving the processor away, and before sleeping.
struct SpinPolicy {
  int pauses = 2000;                               // tries with a pause instruction; 0 if ranks outnumber the cores
  int stays = 200;                                 // likewise, even then, where no awaited rank needs this core
  Duration yields = std::chrono::milliseconds(1);  // then sched_yield for this long; then the engine sleeps for it
};
SpinPolicy spin_policy(int ranks_on_this_host, int their_cores);

}  // namespace tutti
