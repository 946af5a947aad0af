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
  TUTTI_TRY(start_one());
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

Status Callbacks::start_one() {
  std::thread thread = TUTTI_TRY(start_thread([this] { work(); }));
  thread.detach();
  return {};
}

void Callbacks::work() {
  MutexLock lock(mutex_);
  do {
    ++idle_;
    while (waiting_.empty()) filled_.wait(lock);
    --idle_;
    std::function<void()> act = std::move(waiting_.front());
    waiting_.pop_front();
    if (idle_ == 0) (void)start_one();  // without one, `act` must not wait for another callback
    lock.unlock();
    act();
    act = nullptr;
    lock.lock();
  } while (idle_ < kIdle);
}

}  // namespace tutti::comm
