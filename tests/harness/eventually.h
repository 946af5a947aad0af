#pragma once
// For a state of another thread or process that announces itself by nothing that one could wait for. Where there is an
// event (a descriptor, a file, a key of a store, a callback), wait for that instead.
#include <unistd.h>

#include "tutti/base/deadline.h"

namespace tutti::test {

// Looks every 2 ms until the condition holds; false: it did not within a minute.
template <class Condition>
bool eventually(Condition condition) {
  for (const Deadline patience = Deadline::after_seconds(60); !condition(); ::usleep(2000))
    if (patience.expired()) return condition();
  return true;
}

}  // namespace tutti::test
