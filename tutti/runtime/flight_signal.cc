// A handler may do next to nothing, so it leaves the stack that it met in the progress page, and writes to an eventfd
// that the engine thread polls. The descriptor is never
// closed: a signal may come at any time, and must not be written into a file that got the same number.
#include "tutti/runtime/flight_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tutti/runtime/last_stack.h"

namespace tutti {
namespace {

int bell = -1;
pid_t owner = 0;  // a forked child has the handler too, and must not ring for its parent

void on_signal(int, siginfo_t*, void* context) {
  const int before = errno;
  if (::getpid() == owner) {
    look_at_this_stack(SIGUSR2, context);
    (void)::eventfd_write(bell, 1);
  }
  errno = before;
}

int take_signal() {
  struct sigaction now {};
  if (::sigaction(SIGUSR2, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) return -1;
  bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell < 0) return -1;
  owner = ::getpid();
  struct sigaction ours {};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_RESTART | SA_SIGINFO;  // the program's system calls go on as if nothing had been
  sigemptyset(&ours.sa_mask);
  return ::sigaction(SIGUSR2, &ours, nullptr) == 0 ? bell : -1;
}

}  // namespace

int flight_signal() {
  static const int descriptor = take_signal();
  return descriptor;
}

}  // namespace tutti
