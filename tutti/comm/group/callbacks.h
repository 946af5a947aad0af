#pragma once
// The thread on which Work::on_done() calls back: one of a process, started when the first callback is given, never
// ended. So the driver of a group only hands a callback on, and a callback may start calls, take locks, or be Python.
#include <condition_variable>
#include <deque>
#include <functional>

#include "tutti/base/error.h"
#include "tutti/base/mutex.h"

namespace tutti::comm {

class Callbacks {
 public:
  static Callbacks& of_process();

  Status start();  // before run(); does nothing the second time
  void run(std::function<void()> act);

 private:
  void work();

  Mutex mutex_;
  std::condition_variable_any filled_;
  bool started_ TUTTI_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> waiting_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::comm
