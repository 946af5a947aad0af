#pragma once
// What lets threads work on numbered pieces at once and still do one thing to them in order.
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tutti {

// Lets numbered pieces pass one after another. After stop() nobody waits, and nobody passes any more.
class Gate {
 public:
  // Waits for the pieces before; false after stop(). Then this piece is alone until it calls leave().
  bool enter(std::uint64_t piece) {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return stopped_ || next_ == piece; });
    return !stopped_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    ++next_;
    moved_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    moved_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  std::uint64_t next_ = 0;
  bool stopped_ = false;
};

}  // namespace tutti
