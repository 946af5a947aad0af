#pragma once
// The threads on which Work::on_done() calls back, started when the first callback is given. So the driver of a group
// only hands a callback on, and a callback may start calls, take locks, or be Python. One thread is always idle: a
// callback may wait for a call that ends with another callback. Where no further thread can be started, callbacks wait
// for those that run, and each new one tries again.
//
// Threads: any.
#include <condition_variable>
#include <deque>
#include <functional>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/mutex.h"

namespace tutti::comm {

class Callbacks {
 public:
  static Callbacks& of_process();

  Status start();  // before run(); does nothing the second time. kAborted: close() was called
  void run(std::function<void()> act);
  // Waits until all callbacks that were given have returned. False: `limit` passed first, and one may still run.
  // Callbacks that wait then or are given later are neither called nor destroyed.
  bool close(Duration limit);

 private:
  static constexpr int kIdle = 2;  // idle threads that are kept

  Status start_one() TUTTI_REQUIRES(mutex_);
  void work();

  Mutex mutex_;
  std::condition_variable_any filled_, emptied_;
  int idle_ TUTTI_GUARDED_BY(mutex_) = 0;  // those about to start included
  int running_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool started_ TUTTI_GUARDED_BY(mutex_) = false;
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;
  bool has_warned_ TUTTI_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> waiting_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::comm
