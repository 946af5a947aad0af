#include "tutti/comm/backends/gloo/worker.h"

#include <exception>

#include "tutti/base/thread.h"

namespace tutti::comm::gloo_engine {

Result<std::unique_ptr<Worker>> Worker::start(std::function<void()> notify) {
  const auto state = std::make_shared<State>();
  {
    MutexLock lock(state->mutex);
    state->notify = std::move(notify);
  }
  TUTTI_TRY(start_thread([state] { run(state); })).detach();
  return std::unique_ptr<Worker>(new Worker(state));
}

Worker::~Worker() {
  MutexLock lock(state_->mutex);
  state_->ending = true;
  state_->notify = nullptr;  // the object that it notifies may be gone
  state_->changed.notify_all();
}

void Worker::give(std::shared_ptr<Job> job) {
  MutexLock lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_all();
}

bool Worker::is_idle() const {
  MutexLock lock(state_->mutex);
  return state_->jobs.empty() && !state_->busy;
}

void Worker::run(const std::shared_ptr<State>& state) {
  MutexLock lock(state->mutex);
  for (;;) {
    while (state->jobs.empty() && !state->ending) state->changed.wait(lock);
    if (state->jobs.empty()) return;
    const std::shared_ptr<Job> job = std::move(state->jobs.front());
    state->jobs.pop_front();
    state->busy = true;
    lock.unlock();
    try {
      job->act();
    } catch (const std::exception& e) {
      job->failure = *e.what() ? e.what() : "an exception without a message";
    } catch (...) {
      job->failure = "an exception that is not a std::exception";
    }
    job->act = nullptr;
    lock.lock();
    state->busy = false;
    job->done.store(true, std::memory_order_release);
    if (state->notify) state->notify();
  }
}

}  // namespace tutti::comm::gloo_engine
