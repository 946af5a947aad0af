#pragma once
// A thread beside training that carries out one job at a time: training goes on meanwhile, and waits before the next.
//
// Threads: one at a time calls it; carry_out() runs on the thread of its own.
#include <condition_variable>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"

namespace tutti {

template <class Job>
class JobThread {
 public:
  // `carry_out` must not throw.
  explicit JobThread(std::function<void(Job&)> carry_out)
      : carry_out_(std::move(carry_out)), thread_(start_thread([this] { work(); }).or_throw()) {}
  // Waits for the job that is under way.
  ~JobThread() {
    {
      const MutexLock lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  JobThread(const JobThread&) = delete;

  // Until nothing is under way.
  void wait() {
    MutexLock lock(mutex_);
    while (job_) changed_.wait(lock);
  }
  // Only where nothing is under way.
  void begin(Job job) {
    {
      const MutexLock lock(mutex_);
      job_.emplace(std::move(job));
    }
    changed_.notify_all();
  }

 private:
  void work() {
    MutexLock lock(mutex_);
    while (true) {
      while (!job_ && !leaving_) changed_.wait(lock);
      if (!job_) return;
      Job& job = *job_;  // nobody else touches it until it is gone
      lock.unlock();
      carry_out_(job);
      lock.lock();
      job_.reset();
      changed_.notify_all();
    }
  }

  const std::function<void(Job&)> carry_out_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Job> job_ TUTTI_GUARDED_BY(mutex_);
  bool leaving_ TUTTI_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tutti
