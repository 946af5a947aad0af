#pragma once
// The same work on several threads, and its first failure.
#include <functional>

#include "tutti/base/error.h"

namespace tutti {

// Runs work() on so many threads and waits for all of them. The first failure is the result (an exception is thrown
// on); at once, stop() is called, which must make the others return. Where the system
// refuses threads, those that were started do the work; kSystem if there is none.
Status on_threads(int threads, const std::function<Status()>& work, const std::function<void()>& stop);

}  // namespace tutti
