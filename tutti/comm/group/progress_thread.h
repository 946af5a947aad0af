#pragma once
// One thread of the process that drives the calls which no other thread drives, sleeps when all are blocked, and
// watches the peers. Threads: the public calls from any but its own; the rest is its own.
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

namespace tutti::comm {

class CallQueue;

class ProgressThread {
 public:
  // Another descriptor to poll, and what to do when it can be read; returns whether to keep watching it. A fault of the
  // job arrives so through the store, and SIGUSR2.
  struct Watched {
    int fd;
    std::function<bool()> on_ready;
  };
  // `host` may be null (no peers on this host).
  static Result<std::unique_ptr<ProgressThread>> create(transport::Host* host, std::vector<Watched> watched);
  ~ProgressThread();

  // The queue has calls pending. It has to outlive forget().
  void activate(CallQueue& queue);
  // The queue has none, and is about to go: returns when this thread does not use it any more, which takes one turn.
  void forget(CallQueue& queue);
  // Looks again at all pending calls.
  void notify();
  void stop();

 private:
  ProgressThread(transport::Host* host, std::vector<Watched> watched);  // throws
  void reserve();                                                       // before the thread
  void run();
  bool drive_all();
  bool awaits_much();
  void sleep();
  void add_watched();                  // to polled_
  void act_on(const pollfd* watched);  // as add_watched() gave them, polled

  transport::Host* host_;
  std::vector<Watched> watched_;  // this thread's own
  Fd own_bell_;                   // where there is no host
  int bell_fd_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> sleeping_{false};
  Mutex mutex_;
  std::condition_variable_any forgot_;
  std::vector<CallQueue*> fresh_ TUTTI_GUARDED_BY(mutex_);
  std::vector<CallQueue*> to_forget_ TUTTI_GUARDED_BY(mutex_);
  std::vector<CallQueue*> active_;  // this thread's own
  // This thread's own, of one sleep; kept, so that sleeping allocates nothing.
  comm::Blockers blockers_;
  std::vector<pollfd> polled_;
  std::vector<int> peers_;  // local ranks
  std::thread thread_;
};

}  // namespace tutti::comm
