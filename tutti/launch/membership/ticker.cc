#include "tutti/launch/membership/ticker.h"

#include "tutti/base/thread.h"

namespace tutti {

Ticker::Ticker(Duration period, std::function<void()> function) {
  thread_ = start_thread([this, period, function = std::move(function)] {
              MutexLock lock(mutex_);
              while (!stop_) {
                lock.unlock();
                function();
                lock.lock();
                if (!stop_) stopped_.wait_for(lock, period);
              }
            }).or_throw();
}

Ticker::~Ticker() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

}  // namespace tutti
