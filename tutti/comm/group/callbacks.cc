#include "tutti/comm/group/callbacks.h"

#include "tutti/base/thread.h"

namespace tutti::comm {

Callbacks& Callbacks::of_process() {
  static Callbacks* const only = new Callbacks;  // never destroyed: its thread runs until the process ends
  return *only;
}

Status Callbacks::start() {
  const MutexLock lock(mutex_);
  if (started_) return {};
  std::thread thread = TUTTI_TRY(start_thread([this] { work(); }));
  thread.detach();
  started_ = true;
  return {};
}

void Callbacks::run(std::function<void()> act) {
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(std::move(act));
  }
  filled_.notify_one();
}

void Callbacks::work() {
  for (;;) {
    MutexLock lock(mutex_);
    while (waiting_.empty()) filled_.wait(lock);
    const std::function<void()> act = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    act();
  }
}

}  // namespace tutti::comm
