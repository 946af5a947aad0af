#include "tutti/data/clicks/on_threads.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

#include "tutti/base/mutex.h"

namespace tutti {

Status on_threads(int threads, const std::function<Status()>& work, const std::function<void()>& stop) {
  struct {
    Mutex mutex;
    bool failed TUTTI_GUARDED_BY(mutex) = false;
    Status failure TUTTI_GUARDED_BY(mutex);
    std::exception_ptr thrown TUTTI_GUARDED_BY(mutex);
  } first;
  const auto fail = [&](const Status& status, std::exception_ptr exception) {
    const MutexLock lock(first.mutex);
    if (first.failed) return;
    first.failed = true;
    first.failure = status;
    first.thrown = exception;
    stop();
  };
  std::vector<std::thread> running;
  for (int i = 0; i < std::max(threads, 1); ++i) {
    running.emplace_back([&] {
      try {
        if (const Status status = work(); !status.ok()) fail(status, nullptr);
      } catch (...) {
        fail({}, std::current_exception());  // thrown on below
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  const MutexLock lock(first.mutex);
  if (first.thrown) std::rethrow_exception(first.thrown);
  return std::move(first.failure);
}

}  // namespace tutti
