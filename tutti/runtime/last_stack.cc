// A handler of a fatal signal may take no lock and no memory, so it writes addresses, and the lines of /proc/self/maps
// that they fall into; the agent, which has all the time, makes functions and lines of them. backtrace() loads a
// library at its first call, which is therefore made beforehand. The handler runs on a stack of its own, as the
// thread's may be what ran out.
#include "tutti/runtime/last_stack.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tutti/launch/output/error_files.h"

namespace tutti {
namespace {

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
constexpr std::size_t kStackOfHandler = 64 * 1024;

std::atomic<ProgressPage*> page = nullptr;
pid_t stack_owner = 0;  // a forked child has the handlers too, and its crash is not the rank's

// "7f12a000-7f12c000 r-xp ...": whether one of the frames lies in it.
bool holds_a_frame(const char* line, std::size_t size, const ProgressStack& stack) {
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

void copy_maps(ProgressStack& stack) {
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
      if (holds_a_frame(bytes + begin, size, stack) && written + size < ProgressStack::kMaps) {
        std::memcpy(stack.maps + written, bytes + begin, size);
        written += size;
      }
      begin = i + 1;
    }
    if (begin == 0) begin = held;  // a line longer than all this is no mapping of ours
    std::memmove(bytes, bytes + begin, held - begin);
    held -= begin;
  }
  stack.maps[written] = '\0';
  ::close(fd);
}

// Where the signal met the thread: what lies above are handlers. Null: this processor's is not known here.
void* met_at(const void* context) {
  const auto* const at = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  if (at) return reinterpret_cast<void*>(at->uc_mcontext.gregs[REG_RIP]);  // NOLINT: an integer there
#elif defined(__aarch64__)
  if (at) return reinterpret_cast<void*>(at->uc_mcontext.pc);  // NOLINT
#endif
  return nullptr;
}

void take_stack(ProgressStack& stack, int signal, const void* address, const void* context) {
  std::atomic_ref number(stack.number);
  const std::uint32_t before = number.load();
  number.store(0);
  stack.signal = signal;
  stack.thread = std::int32_t(::syscall(SYS_gettid));
  stack.address = reinterpret_cast<std::uintptr_t>(address);
  void* frames[ProgressStack::kFrames];
  const std::uint32_t all = std::uint32_t(::backtrace(frames, int(ProgressStack::kFrames)));
  std::uint32_t first = 0;
  while (first < all && frames[first] != met_at(context)) ++first;
  if (first == all) first = 0;
  for (std::uint32_t i = first; i < all; ++i) stack.frames[i - first] = reinterpret_cast<std::uintptr_t>(frames[i]);
  stack.count = all - first;
  stack.maps[0] = '\0';
  copy_maps(stack);
  number.store(before + 1);
}

// Another thread may crash as well; the first counts.
void on_fatal_signal(int signal, siginfo_t* info, void* context) {
  static std::atomic<bool> taken = false;
  ProgressPage* const ours = page.load();
  if (ours && ::getpid() == stack_owner && !taken.exchange(true))
    take_stack(ours->layout().crash, signal, signal == SIGABRT ? nullptr : info->si_addr, context);
  // SA_RESETHAND: a fault strikes again when this returns; what was sent, or went by, has to be sent again.
  const bool strikes_again = info->si_code > 0 && (signal == SIGSEGV || signal == SIGFPE || signal == SIGILL);
  if (!strikes_again) ::raise(signal);
}

}  // namespace

void keep_last_stacks(ProgressPage& of) {
  if (page.load()) return;
  stack_owner = ::getpid();
  void* warm_up[4];
  (void)::backtrace(warm_up, 4);  // loads libgcc, which a handler may not
  page.store(&of);
  void* const stack =
      ::mmap(nullptr, kStackOfHandler, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  stack_t before{};
  if (stack != MAP_FAILED && ::sigaltstack(nullptr, &before) == 0 && (before.ss_flags & SS_DISABLE)) {
    const stack_t own{.ss_sp = stack, .ss_flags = 0, .ss_size = kStackOfHandler};
    (void)::sigaltstack(&own, nullptr);  // without it an overflow of the stack has no last words
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

void look_at_this_stack(int signal, const void* context) {
  ProgressPage* const ours = page.load();
  if (ours && ::getpid() == stack_owner) take_stack(ours->layout().look, signal, nullptr, context);
}

void leave_last_words(const char* words) {
  ProgressPage* const ours = page.load();
  if (ours && ::getpid() == stack_owner) ours->set_message(words);
  (void)write_error_file(words);  // the words are on standard error as well
}

}  // namespace tutti
