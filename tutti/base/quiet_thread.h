#pragma once
// A thread that takes no signals: they are for the thread that waits for them.
#include <csignal>
#include <thread>
#include <utility>

namespace tutti {

template <class Function>
std::thread quiet_thread(Function&& function) {
  const struct AllBlocked {
    sigset_t before;
    AllBlocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~AllBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }  // also where no thread can be had
  } blocked;
  return std::thread(std::forward<Function>(function));
}

}  // namespace tutti
