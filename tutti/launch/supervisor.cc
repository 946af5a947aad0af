// The parent-death signal takes the workers down with the agent, but not what a worker started: that becomes somebody
// else's child and goes on. So the agent runs as the child of a keeper that does nothing but wait. Both are subreapers:
//
//   agent killed:   its workers die by their parent-death signal, what they had started becomes the keeper's child,
//                   and the keeper ends it.
//   keeper killed:  the agent sees it (a pidfd becomes readable) and ends everybody, itself last.
//
// Only SIGKILL to both at the same moment leaves somebody: the workers themselves die even then, by their parent-death
// signal, but what they had started does not: a daemon, or the program that a wrapper script runs without exec.
//
// The agent passes the user's first signal on to the ranks and kills them at the second. An agent that is stopped could
// do neither, so it is continued first; one that is stopped still at the second signal, or not done at the third, is
// killed, and the keeper ends everybody.
//
// The agent leads a session of its own, so that Ctrl-C and `kill -- -PGID` reach the keeper alone, which passes each
// signal on once: the second one is then truly the user's second. Its workers stay in that one session: where the
// kernel groups processes by session to share the processor (sched_autogroup), a rank that yields gives way to its own
// kind only, and with a session for each rank a yield gave way to nobody: 2 ms a call instead of 5 us when ranks
// outnumber the cores.
#include "tutti/launch/supervisor.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "tutti/base/machine.h"
#include "tutti/launch/agent/signals.h"
#include "tutti/launch/process.h"

namespace tutti {
namespace {

constexpr int kMostPatience = 3;  // signals that ask for the end

// The agent's wait status, when it has ended; orphans that came to us meanwhile are reaped on the way.
int keep(pid_t agent) {
  const sigset_t signals = signals_of_a_job();
  int asked = 0;
  for (;;) {
    siginfo_t info{};
    if (sigwaitinfo(&signals, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      if (asks_for_the_end(info.si_signo) && (++asked >= kMostPatience || (asked > 1 && is_suspended(agent)))) {
        kill(agent, SIGKILL);
        continue;
      }
      kill(agent, info.si_signo);
      if (asks_for_the_end(info.si_signo)) kill(agent, SIGCONT);
      continue;
    }
    int status = 0;
    pid_t reaped;
    while ((reaped = waitpid(-1, &status, WNOHANG)) > 0) {
      if (reaped == agent) return status;
    }
  }
}

}  // namespace

Result<int> run_with_keeper(const std::function<int(const Fd& keeper_gone)>& agent,
                            const std::function<void(pid_t agent)>& killed) {
  TUTTI_TRY(become_subreaper());
  const sigset_t signals = signals_of_a_job();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t keeper = getpid();
  const pid_t child = fork();
  if (child < 0) return system_error(errno, "could not start the agent", "raise the limit of processes: ulimit -u");
  if (child == 0) {
    setsid();
    const Fd keeper_gone(int(syscall(SYS_pidfd_open, keeper, 0)));
    if (getppid() != keeper) _exit(128 + SIGKILL);
    int code = 1;
    if (const Status status = become_subreaper(); !status) {
      std::fprintf(stderr, "tutti: %s\n", to_string(status.error()).c_str());
    } else {
      code = agent(keeper_gone);
    }
    std::fflush(nullptr);
    _exit(code);
  }
  const Exit exit = exit_of(keep(child));
  const bool left_by_itself = exit.signal == 0;  // then it has waited for its descendants
  const auto ended = end_descendants(Deadline::after_seconds(left_by_itself ? 0.5 : 5));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (exit.signal != 0) killed(child);
  const bool by_user =
      exit.signal == SIGINT || exit.signal == SIGTERM || exit.signal == SIGHUP || exit.signal == SIGQUIT;
  if (exit.signal != 0 && !by_user) {
    std::fprintf(stderr, "[tutti] the agent %s; its workers were ended%s\n", to_string(exit).c_str(),
                 ended.ok() ? "" : (", except: " + to_string(ended.error())).c_str());
  }
  return exit.shell_code();
}

EndAtOnce::EndAtOnce(const Fd& keeper_gone) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t signals = signals_of_a_job();
  sigdelset(&signals, SIGCHLD);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  pollfd already = {keeper_gone.get(), POLLIN, 0};  // before there was a signal to tell of it
  if (poll(&already, 1, 0) > 0) raise(SIGTERM);
}

EndAtOnce::~EndAtOnce() {
  const sigset_t signals = signals_of_a_job();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  prctl(PR_SET_PDEATHSIG, 0);
}

}  // namespace tutti
