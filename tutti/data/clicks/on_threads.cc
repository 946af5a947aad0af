#include "tutti/data/clicks/on_threads.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"

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
    auto started = start_thread([&] {
      try {
        if (const Status status = work(); !status.ok()) fail(status, nullptr);
      } catch (...) {
        fail({}, std::current_exception());  // thrown on below
      }
    });
    if (!started.ok()) {
      if (running.empty()) return started.status();
      break;  // fewer threads do the same work
    }
    running.push_back(*std::move(started));
  }
  for (std::thread& thread : running) thread.join();
  const MutexLock lock(first.mutex);
  if (first.thrown) std::rethrow_exception(first.thrown);
  return std::move(first.failure);
}

}  // namespace tutti
