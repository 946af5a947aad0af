#pragma once
// Threads in which Gloo may block.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/mutex.h"

namespace tutti::gloo_engine {

// Something that blocks, carried out on a Worker. Any thread may look at `done`; `failure` is valid once it is set.
struct Job {
  std::function<void()> act;  // throws to fail
  std::string failure;        // empty: it succeeded
  std::atomic<bool> done{false};
};

// One thread and its queue: jobs in the order given. The thread outlives the Worker where it is stuck in a job: it
// holds on to what the job needs, and ends with it.
class Worker {
 public:
  // `notify`: after every job, from the thread. Throws std::system_error if there is no thread to be had.
  explicit Worker(std::function<void()> notify);
  ~Worker();
  Worker(const Worker&) = delete;
  void give(std::shared_ptr<Job> job);
  bool is_idle() const;

 private:
  struct State {
    Mutex mutex;
    std::condition_variable_any changed;
    std::deque<std::shared_ptr<Job>> jobs TUTTI_GUARDED_BY(mutex);
    bool busy TUTTI_GUARDED_BY(mutex) = false, ending TUTTI_GUARDED_BY(mutex) = false;
    std::function<void()> notify TUTTI_GUARDED_BY(mutex);
  };
  static void run(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace tutti::gloo_engine
