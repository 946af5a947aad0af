// A handler of a fatal signal may take no lock and allocate no memory. So it writes addresses, and the lines of
// /proc/self/maps that contain them; the agent, which has time, turns them into functions and lines. backtrace() loads
// a library at its first call, which is therefore made beforehand. The handler runs on a stack of its own, because the
// thread's stack may be what ran out.
//
// The handler of SIGUSR2 leaves the interrupted stack in the progress page and writes to an eventfd that the progress
// thread polls. The descriptor is never closed: a signal may arrive at any time, and must not be written into a file
// that got the same number.
//
// The shortest program, `int main() { auto world = tutti::init(); ... }`, has no try. A user who forgot a variable
// should read what is missing, and the launcher should see a plain exit code instead of a crash of this rank.
#include "tutti/runtime/process_hooks.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>

#include "tutti/base/env.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/output/error_files.h"

namespace tutti::runtime {
namespace {

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
constexpr std::size_t kStackOfHandler = 64 * 1024;

std::atomic<trace::ProgressPage*> page_of_stacks = nullptr;
pid_t stack_owner = 0;  // a forked child has the handlers, too, but its crash is not the rank's

// "7f12a000-7f12c000 r-xp ...": whether it contains one of the frames.
bool holds_a_frame(const char* line, std::size_t size, const trace::ProgressStack& stack) {
  std::uint64_t bounds[2] = {};
  int which = 0;
  for (std::size_t i = 0; i < size && which < 2; ++i) {
    const char c = line[i];
    if (c == '-' || c == ' ') {
      ++which;
    } else {
      bounds[which] = bounds[which] << 4 | std::uint64_t(c <= '9' ? c - '0' : c - 'a' + 10);
    }
  }
  for (std::uint32_t i = 0; i < stack.count; ++i)
    if (stack.frames[i] >= bounds[0] && stack.frames[i] < bounds[1]) return true;
  return false;
}

void copy_maps(trace::ProgressStack& stack) {
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char bytes[4096];
  std::size_t held = 0, written = 0;
  for (;;) {
    const ssize_t count = ::read(fd, bytes + held, sizeof bytes - held);
    if (count <= 0) break;
    held += std::size_t(count);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < held; ++i) {
      if (bytes[i] != '\n') continue;
      const std::size_t size = i + 1 - begin;
      if (holds_a_frame(bytes + begin, size, stack) && written + size < trace::ProgressStack::kMaps) {
        std::memcpy(stack.maps + written, bytes + begin, size);
        written += size;
      }
      begin = i + 1;
    }
    if (begin == 0) begin = held;  // skip a line that is longer than the buffer
    std::memmove(bytes, bytes + begin, held - begin);
    held -= begin;
  }
  stack.maps[written] = '\0';
  ::close(fd);
}

// The instruction that the signal interrupted: frames above it are handlers. Null: unknown on this processor.
void* interrupted_at(const void* context) {
  const auto* const at = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  if (at) return reinterpret_cast<void*>(at->uc_mcontext.gregs[REG_RIP]);  // NOLINT: an integer there
#elif defined(__aarch64__)
  if (at) return reinterpret_cast<void*>(at->uc_mcontext.pc);  // NOLINT
#endif
  return nullptr;
}

void take_stack(trace::ProgressStack& stack, int signal, const void* address, const void* context) {
  std::atomic_ref number(stack.number);
  const std::uint32_t before = number.load();
  number.store(0);
  stack.signal = signal;
  stack.thread = std::int32_t(::syscall(SYS_gettid));
  stack.address = reinterpret_cast<std::uintptr_t>(address);
  void* frames[trace::ProgressStack::kFrames];
  const std::uint32_t all = std::uint32_t(::backtrace(frames, int(trace::ProgressStack::kFrames)));
  std::uint32_t first = 0;
  while (first < all && frames[first] != interrupted_at(context)) ++first;
  if (first == all) first = 0;
  for (std::uint32_t i = first; i < all; ++i) stack.frames[i - first] = reinterpret_cast<std::uintptr_t>(frames[i]);
  stack.count = all - first;
  stack.maps[0] = '\0';
  copy_maps(stack);
  number.store(before + 1);
}

// Several threads may crash; the first counts.
void on_fatal_signal(int signal, siginfo_t* info, void* context) {
  static std::atomic<bool> taken = false;
  trace::ProgressPage* const page = page_of_stacks.load();
  if (page && ::getpid() == stack_owner && !taken.exchange(true))
    take_stack(page->layout().crash, signal, signal == SIGABRT ? nullptr : info->si_addr, context);
  // SA_RESETHAND: a fault repeats when this returns; a signal that was sent must be raised again.
  const bool repeats = info->si_code > 0 && (signal == SIGSEGV || signal == SIGFPE || signal == SIGILL);
  if (!repeats) ::raise(signal);
}

int flight_event = -1;
pid_t flight_owner = 0;  // a forked child has the handler, too, and must not write to its parent's eventfd

void on_usr2(int, siginfo_t*, void* context) {
  const int before = errno;
  if (::getpid() == flight_owner) {
    trace::ProgressPage* const page = page_of_stacks.load();
    if (page && flight_owner == stack_owner) take_stack(page->layout().look, SIGUSR2, nullptr, context);
    (void)::eventfd_write(flight_event, 1);
  }
  errno = before;
}

int take_signal() {
  struct sigaction now {};
  if (::sigaction(SIGUSR2, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) return -1;
  auto made = make_eventfd();
  if (!made.ok()) return -1;
  flight_event = made->release();  // never closed: a signal may arrive late
  flight_owner = ::getpid();
  struct sigaction ours {};
  ours.sa_sigaction = on_usr2;
  ours.sa_flags = SA_RESTART | SA_SIGINFO;  // restarts the program's system calls
  sigemptyset(&ours.sa_mask);
  return ::sigaction(SIGUSR2, &ours, nullptr) == 0 ? flight_event : -1;
}

Result<std::unique_ptr<trace::ProgressPage>> open_given(const std::string& text) {
  const auto fd = parse_int(text);
  if (!fd || *fd < 0 || *fd > INT32_MAX)
    return Error{.code = Code::kMismatch, .detail = "TUTTI_PROGRESS_FD is \"" + text + "\", which is no descriptor"};
  auto page = TUTTI_TRY(trace::ProgressPage::open(int(*fd)));
  (void)::fcntl(int(*fd), F_SETFD, FD_CLOEXEC);  // not for processes that this one starts
  // Yama allows only ancestors to trace a process, and the debugger that the agent starts is none.
  (void)::prctl(PR_SET_PTRACER, ::getppid(), 0, 0, 0);
  if (auto for_handlers = trace::ProgressPage::open(int(*fd)); for_handlers.ok())
    keep_last_stacks(*for_handlers->release());  // never unmapped: a signal may arrive late
  return page;
}

std::terminate_handler handler_before = nullptr;

int code_of(const Error& error) {
  const int code = launch::exit_code_of(error.code);
  const bool usage = error.code == Code::kUsage || error.code == Code::kInvalidArgument;
  return usage || launch::is_of_joining(error) ? code : 1;
}

[[noreturn]] void on_terminate() {
  try {
    if (const auto uncaught = std::current_exception()) std::rethrow_exception(uncaught);
  } catch (const Exception& failure) {
    leave_last_words(failure.what());
    log::error(failure.what());
    std::fflush(nullptr);
    ::_exit(code_of(failure.error()));
  } catch (const std::exception& failure) {  // other exceptions: handled by the previous handler
    leave_last_words(failure.what());
  } catch (...) {
  }
  if (handler_before) handler_before();
  std::abort();
}

}  // namespace

void keep_last_stacks(trace::ProgressPage& of) {
  if (page_of_stacks.load()) return;
  stack_owner = ::getpid();
  void* warm_up[4];
  (void)::backtrace(warm_up, 4);  // loads libgcc, which a handler must not do
  page_of_stacks.store(&of);
  void* const stack =
      ::mmap(nullptr, kStackOfHandler, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  stack_t before{};
  if (stack != MAP_FAILED && ::sigaltstack(nullptr, &before) == 0 && (before.ss_flags & SS_DISABLE)) {
    const stack_t own{.ss_sp = stack, .ss_flags = 0, .ss_size = kStackOfHandler};
    (void)::sigaltstack(&own, nullptr);  // without it an overflow of the stack leaves nothing
  }
  for (const int signal : kFatal) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_sigaction = on_fatal_signal;
    ours.sa_flags = int(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
    sigemptyset(&ours.sa_mask);
    (void)::sigaction(signal, &ours, nullptr);  // cannot fail for a signal that can be caught
  }
}

void leave_last_words(const char* message) {
  trace::ProgressPage* const page = page_of_stacks.load();
  if (page && ::getpid() == stack_owner) page->set_message(message);
  (void)launch::write_error_file(message);  // if that fails: the message is on standard error as well
}

int flight_signal() {
  static const int descriptor = take_signal();
  return descriptor;
}

std::unique_ptr<trace::ProgressPage> open_progress() {
  if (const auto text = env("TUTTI_PROGRESS_FD")) {
    auto page = open_given(*text);
    if (page.ok()) return *std::move(page);
    log::warn("tutti run will not see what this rank does: " + page.error().detail);
  }
  auto page = trace::ProgressPage::make_private();
  return page.ok() ? *std::move(page) : nullptr;
}

void end_uncaught_exceptions_with_a_sentence() {
  static std::once_flag once;
  std::call_once(once, [] { handler_before = std::set_terminate(on_terminate); });
}

}  // namespace tutti::runtime
