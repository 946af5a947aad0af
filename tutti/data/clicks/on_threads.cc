#include "tutti/data/clicks/on_threads.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/base/quiet_thread.h"

namespace tutti {

Status on_threads(int threads, const std::function<Status()>& work, const std::function<void()>& stop) {
  std::mutex mutex;
  bool failed = false;
  Status failure;
  std::exception_ptr thrown;
  const auto fail = [&](const Status& status, std::exception_ptr exception) {
    const std::lock_guard lock(mutex);
    if (failed) return;
    failed = true;
    failure = status;
    thrown = exception;
    stop();
  };
  std::vector<std::thread> running;
  for (int i = 0; i < std::max(threads, 1); ++i) {
    auto started = try_thread([&] {
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
  if (thrown) std::rethrow_exception(thrown);
  return failure;
}

}  // namespace tutti
