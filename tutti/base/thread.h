#pragma once
// Starts threads. This may fail: ulimit -u, the cgroup's limit of tasks, or no memory for the stack.
#include <condition_variable>
#include <csignal>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/mutex.h"

namespace tutti {

namespace detail {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }  // also if the thread cannot be started
  SignalsBlocked(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

template <class Start>
auto started(const Start& start) -> Result<decltype(start())> {
  const SignalsBlocked blocked;
  try {
    return start();
  } catch (const std::system_error& refused) {
    return Error{.code = Code::kSystem,  // inline: adapters that use this header do not link the core
                 .detail = "could not start a thread",
                 .hint = "raise the limit of threads (ulimit -u, or the cgroup's pids.max)",
                 .errno_value = refused.code().value()};
  }
}

}  // namespace detail

// Starts a thread with all signals blocked, so that other threads handle them. kSystem: it cannot be started.
template <class Function>
Result<std::thread> start_thread(Function&& function) {
  return detail::started([&] { return std::thread(std::forward<Function>(function)); });
}

// std::async() on a new thread with all signals blocked. The destructor of the future waits. kSystem: it cannot be
// started.
template <class Function>
auto start_async(Function&& function) -> Result<std::future<std::invoke_result_t<Function>>> {
  return detail::started([&] { return std::async(std::launch::async, std::forward<Function>(function)); });
}

// Runs tasks one after another, on a thread that exists only while there are tasks, or, after keep_thread(), until the
// destructor. Any thread may call the functions. A task must not throw.
class BackgroundTasks {
 public:
  BackgroundTasks() = default;
  BackgroundTasks(const BackgroundTasks&) = delete;
  // Waits until all tasks have run.
  ~BackgroundTasks() {
    MutexLock lock(mutex_);
    std::thread last = std::move(thread_);
    is_kept_ = false;
    lock.unlock();
    changed_.notify_all();
    if (last.joinable()) last.join();
  }

  // Starts the thread now and keeps it, so that run() cannot fail. Does nothing the second time.
  Status keep_thread() TUTTI_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (is_kept_) return {};
    is_kept_ = true;
    if (is_working_) return {};
    Status status = start();
    is_kept_ = status.ok();
    return status;
  }

  // kSystem if no thread can be had; then the task does not run.
  Status run(std::function<void()> task) TUTTI_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
    if (is_working_) return {};
    Status status = start();
    if (!status.ok()) tasks_.pop_back();
    return status;
  }

 private:
  Status start() TUTTI_REQUIRES(mutex_) {
    if (thread_.joinable()) thread_.join();  // it has left work(), or is about to return
    thread_ = TUTTI_TRY(start_thread([this] { work(); }));
    is_working_ = true;
    return {};
  }

  void work() {
    MutexLock lock(mutex_);
    for (;;) {
      while (tasks_.empty() && is_kept_) changed_.wait(lock);
      if (tasks_.empty()) break;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
    is_working_ = false;
  }

  Mutex mutex_;
  std::deque<std::function<void()>> tasks_ TUTTI_GUARDED_BY(mutex_);
  bool is_working_ TUTTI_GUARDED_BY(mutex_) = false;
  bool is_kept_ TUTTI_GUARDED_BY(mutex_) = false;
  std::condition_variable_any changed_;  // there are tasks, or the thread is kept no longer
  std::thread thread_ TUTTI_GUARDED_BY(mutex_);
};

// A member whose owner's destructor asks whether an exception is unwinding the stack past the owner. An exception in
// flight alone does not mean that: objects may be constructed and destroyed inside a destructor that the unwinding
// calls.
class Unwinding {
 public:
  bool is_past() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace tutti
