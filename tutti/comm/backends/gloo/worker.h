#pragma once
// Threads in which Gloo may block.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/mutex.h"

namespace tutti::comm::gloo_engine {

// A blocking action that runs on a Worker. Any thread may read `done`; `failure` is valid once `done` is set.
struct Job {
  std::function<void()> act;  // throws to fail
  std::string failure;        // empty if it succeeded
  std::atomic<bool> done{false};
};

// One thread and its queue. Jobs run in the order given. If the thread is stuck in a job, it outlives the Worker. It
// then owns what the job needs, and ends together with the job.
class Worker {
 public:
  // `notify` is called after every job, from the thread.
  static Result<std::unique_ptr<Worker>> start(std::function<void()> notify);
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
  explicit Worker(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void run(const std::shared_ptr<State>& state);
  const std::shared_ptr<State> state_;
};

}  // namespace tutti::comm::gloo_engine
