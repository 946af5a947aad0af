#pragma once
// A thread that takes no signals: they are for the thread that waits for them. A thread may be refused: by ulimit -u,
// by the cgroup's limit of tasks, or because no memory is left for its stack.
#include <csignal>
#include <future>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "tutti/base/error.h"

namespace tutti {
namespace detail {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }  // also where no thread can be had
  SignalsBlocked(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

template <class Start>
auto started(const Start& start) -> Result<decltype(start())> {
  const SignalsBlocked blocked;
  try {
    return start();
  } catch (const std::system_error& refused) {
    return system_error(refused.code().value(), "could not start a thread",
                        "raise the limit of threads (ulimit -u, or the cgroup's pids.max)");
  }
}

}  // namespace detail

template <class Function>
Result<std::thread> try_thread(Function&& function) {
  return detail::started([&] { return std::thread(std::forward<Function>(function)); });
}

// For constructors: throws the error of try_thread().
template <class Function>
std::thread quiet_thread(Function&& function) {
  return try_thread(std::forward<Function>(function)).or_throw();
}

// As std::async() on a thread of its own; the destructor of the future waits.
template <class Function>
auto try_async(Function&& function) -> Result<std::future<std::invoke_result_t<Function>>> {
  return detail::started([&] { return std::async(std::launch::async, std::forward<Function>(function)); });
}

}  // namespace tutti
