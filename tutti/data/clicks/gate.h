#pragma once
// What lets threads work on numbered pieces at once and still do one thing to them in order.
#include <condition_variable>
#include <cstdint>

#include "tutti/base/mutex.h"

namespace tutti {

// Lets numbered pieces pass one after another. After stop() nobody waits, and nobody passes any more.
class Gate {
 public:
  // Waits for the pieces before; false after stop(). Then this piece is alone until it calls leave().
  bool enter(std::uint64_t piece) {
    MutexLock lock(mutex_);
    while (!stopped_ && next_ != piece) moved_.wait(lock);
    return !stopped_;
  }
  void leave() {
    const MutexLock lock(mutex_);
    ++next_;
    moved_.notify_all();
  }
  void stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
    moved_.notify_all();
  }

 private:
  Mutex mutex_;
  std::condition_variable_any moved_;
  std::uint64_t next_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool stopped_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace tutti
