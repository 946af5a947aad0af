// The parent-death signal ends the workers with the agent, but not what a worker started: that gets another parent and
// runs on. So the agent runs as the child of a supervisor that only waits. Both are subreapers:
//
//   agent killed:       its workers die by their parent-death signal; what they had started becomes the supervisor's
//                       child, and the supervisor ends it.
//   supervisor killed:  the agent notices (a pidfd becomes readable) and ends everything, itself last.
//
// Only SIGKILL to both at the same moment leaves something behind: the workers die even then, by their parent-death
// signal, but what they had started does not: a daemon, or the program that a wrapper script runs without exec.
//
// The agent passes the user's first signal on to the ranks and kills them at the second. A stopped agent could do
// neither, so it is continued first. If it is still stopped at the second signal, or not done at the third, it is
// killed and the supervisor ends everything.
//
// The agent leads a session of its own, so that Ctrl-C and `kill -- -PGID` reach only the supervisor, which passes each
// signal on once. A scheduler that signals every process reaches the agent as well; EndRequests counts both as one
// request. The workers stay in that one session: where the kernel groups processes by session to share the processor
// (sched_autogroup), a rank that yields gives way only to its own session. With a session for each rank a yield gave
// way to nothing: 2 ms a call instead of 5 us when ranks outnumber the cores.
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
#include "tutti/launch/agent/events.h"
#include "tutti/launch/process.h"

namespace tutti::launch {
namespace {

constexpr int kMostPatience = 3;  // signals that ask for the end

// The agent's wait status, once it has ended. Reaps orphans that arrive meanwhile.
int supervise(pid_t agent) {
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
      if (asks_for_the_end(info.si_signo)) kill(agent, SIGCONT);  // before: it must not undo a stop after the request
      kill(agent, info.si_signo);
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

Result<int> run_supervised(const std::function<int(const Fd& supervisor_gone)>& agent,
                           const std::function<void(pid_t agent)>& killed) {
  TUTTI_TRY(become_subreaper());
  const sigset_t signals = signals_of_a_job();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t supervisor = getpid();
  const pid_t child = fork();
  if (child < 0) return system_error(errno, "could not start the agent", "raise the limit of processes: ulimit -u");
  if (child == 0) {
    setsid();
    const Fd supervisor_gone(int(syscall(SYS_pidfd_open, supervisor, 0)));
    if (getppid() != supervisor) _exit(128 + SIGKILL);
    int code = 1;
    if (const Status status = become_subreaper(); !status) {
      std::fprintf(stderr, "tutti: %s\n", to_string(status.error()).c_str());
    } else {
      code = agent(supervisor_gone);
    }
    std::fflush(nullptr);
    _exit(code);
  }
  const Exit exit = exit_of(supervise(child));
  const bool left_by_itself = exit.signal == 0;  // then it has ended its descendants
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

EndAtOnce::EndAtOnce(const Fd& supervisor_gone) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t signals = signals_of_a_job();
  sigdelset(&signals, SIGCHLD);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  pollfd already = {supervisor_gone.get(), POLLIN, 0};  // it died before the signal was set
  if (poll(&already, 1, 0) > 0) raise(SIGTERM);
}

EndAtOnce::~EndAtOnce() {
  const sigset_t signals = signals_of_a_job();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  prctl(PR_SET_PDEATHSIG, 0);
}

}  // namespace tutti::launch
