#pragma once
// A thread that takes no signals: they are for the thread that waits for them.
#include <csignal>
#include <thread>
#include <utility>

namespace tutti {

template <class Function>
std::thread quiet_thread(Function&& function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Function>(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace tutti
