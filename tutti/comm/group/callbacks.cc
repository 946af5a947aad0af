#include "tutti/comm/group/callbacks.h"

#include <utility>

#include "tutti/base/deadline.h"
#include "tutti/base/log.h"
#include "tutti/base/thread.h"

namespace tutti::comm {

Callbacks& Callbacks::of_process() {
  static Callbacks* const only = new Callbacks;  // never destroyed: its thread runs until the process ends
  return *only;
}

Status Callbacks::start() {
  const MutexLock lock(mutex_);
  if (closed_)
    return Error{.code = Code::kAborted, .detail = "no callback of a call runs any more: this process is about to end"};
  if (started_) return {};
  TUTTI_TRY(start_one());
  started_ = true;
  return {};
}

void Callbacks::run(std::function<void()> act) {
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(std::move(act));
    if (closed_) return;
    if (idle_ == 0) (void)start_one();  // work() has warned
  }
  filled_.notify_one();
}

bool Callbacks::close(Duration limit) {
  const Deadline deadline = Deadline::after(limit);
  MutexLock lock(mutex_);
  while ((running_ > 0 || !waiting_.empty()) && !deadline.expired()) emptied_.wait_until(lock, deadline.at());
  closed_ = true;
  return running_ == 0 && waiting_.empty();
}

Status Callbacks::start_one() {
  std::thread thread = TUTTI_TRY(start_thread([this] { work(); }));
  thread.detach();
  ++idle_;
  return {};
}

void Callbacks::work() {
  MutexLock lock(mutex_);
  for (;;) {
    while (waiting_.empty() || closed_) filled_.wait(lock);
    --idle_;
    ++running_;
    std::function<void()> act = std::move(waiting_.front());
    waiting_.pop_front();
    const Status status = idle_ == 0 ? start_one() : Status();
    const bool warns = !status.ok() && !std::exchange(has_warned_, true);
    lock.unlock();
    if (warns) log::warn("callbacks of Work::on_done() run one after another: " + to_string(status.error()));
    act();
    act = nullptr;
    lock.lock();
    if (--running_ == 0 && waiting_.empty()) emptied_.notify_all();
    if (idle_ >= kIdle) return;
    ++idle_;
  }
}

}  // namespace tutti::comm
