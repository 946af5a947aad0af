#pragma once
// Calls a function again and again from a thread of its own.
#include <condition_variable>
#include <functional>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/mutex.h"

namespace tutti {

class Ticker {
 public:
  Ticker(Duration period, std::function<void()> function);
  ~Ticker();  // waits for a call that is under way

 private:
  Mutex mutex_;
  std::condition_variable_any stopped_;
  bool stop_ TUTTI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tutti
