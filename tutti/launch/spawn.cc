// The ranks are forked and not executed, which is what lets them run a function. They join at an abstract Unix socket,
// with a secret that they inherit. So no free port must be found, this process needs no thread (which would forbid the
// fork), and nothing is left behind when all of them are killed.
//
// A fork copies only one thread, so this process may have only one. Debian's OpenBLAS, which LibTorch links, starts
// threads when it is loaded, before main(). They wait for work and hold no lock, and OpenBLAS starts new ones when it
// needs them: here they are ended first.
//
// Which error was first? All ranks write their error into one pipe, each in one piece, so the order in the pipe is the
// order of the errors. A rank that a signal killed writes nothing, but its peers, which lose it, do. So when the first
// error arrives, the other ranks get a moment to report, or to show by their death, what is closer to the cause.
#include "tutti/launch/spawn.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/env.h"
#include "tutti/base/fd.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/layout.h"
#include "tutti/launch/process.h"
#include "tutti/rendezvous/job_secret.h"
#include "tutti/transport/address.h"

namespace tutti {
namespace {

constexpr auto kCauseLimit = std::chrono::milliseconds(300);  // for an error closer to the cause than the first one
constexpr auto kSpawnKillLimit = std::chrono::seconds(5);
constexpr auto kJoinedThreadLimit = std::chrono::seconds(1);  // to leave /proc
constexpr auto kSpawnPoll = std::chrono::milliseconds(20);    // without a pidfd that reports an end

int threads_of_this_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// A function of a library; null if this program does not load the library.
template <class Function>
Function* function_of_a_library(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// How many threads this process has once OpenBLAS has ended its own.
int threads_before_fork() {
  int threads = threads_of_this_process();
  auto* const end_openblas_threads = function_of_a_library<int()>("blas_thread_shutdown_");
  if (threads == 1 || !end_openblas_threads) return threads;
  end_openblas_threads();  // joins them, and a joined thread is in /proc for another moment
  for (const Deadline end = Deadline::after(kJoinedThreadLimit); !end.expired(); sched_yield()) {
    threads = threads_of_this_process();
    if (threads == 1) break;
  }
  return threads;
}

// OpenBLAS counted the cores when it was loaded. A rank has its share of them.
void share_openblas_threads(int ranks) {
  if (env("OPENBLAS_NUM_THREADS") || env("OMP_NUM_THREADS")) return;
  if (auto* const set = function_of_a_library<void(int)>("openblas_set_num_threads"))
    set(std::max(1, usable_cores() / ranks));
}

// Where the ranks join.
struct SpawnRendezvous {
  transport::Address address = transport::new_abstract_address();
  Fd secret = transport::secret_descriptor(transport::Secret::random()).or_throw();
};

// What a rank writes when rank_main has thrown; at most PIPE_BUF bytes, so that it arrives in one piece.
struct RankError {
  int rank;
  Code code;
  char text[2000];
};
static_assert(sizeof(RankError) <= PIPE_BUF);

bool names_another_rank(Code code) { return code == Code::kPeerLost || code == Code::kAborted; }

void set_variables(int rank, int ranks, const SpawnRendezvous& rendezvous) {
  Environment environment = current_environment();
  std::vector<std::string> before;
  for (const auto& [name, value] : environment) before.push_back(name);
  (void)launch::remove_stale(environment);  // only a launcher prints their names
  launch::set_worker_variables(environment, launch::WorkerVariables{.rank = rank,
                                                                    .world_size = ranks,
                                                                    .local_rank = rank,
                                                                    .local_world_size = ranks,
                                                                    .master_address = "127.0.0.1",
                                                                    .job = rendezvous.address.path.substr(1),
                                                                    .secret_fd = rendezvous.secret.get()});
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}) environment.erase(name);
  environment["TUTTI_INIT"] = "unix://" + rendezvous.address.path;
  (void)fcntl(rendezvous.secret.get(), F_SETFD, 0);  // a rank may become a program that joins
  for (const std::string& name : before) {
    if (!environment.count(name)) unsetenv(name.c_str());
  }
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
}

[[noreturn]] void be_a_rank(int rank, int ranks, const SpawnRendezvous& rendezvous, int errors, pid_t parent,
                            const std::function<void(int)>& rank_main) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(128 + SIGKILL);
  RankError report{.rank = rank, .code = Code::kInternal, .text = {}};
  const auto fail = [&](const char* text) {
    std::strncpy(report.text, text, sizeof report.text - 1);
    std::fflush(nullptr);
    (void)!write(errors, &report, sizeof report);  // a parent that is gone has killed this rank, or is about to
    _exit(1);
  };
  try {
    set_variables(rank, ranks, rendezvous);
    share_openblas_threads(ranks);
    rank_main(rank);
  } catch (const Exception& error) {
    report.code = error.error().code;
    fail(error.what());
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("threw an exception that is not a std::exception");
  }
  std::fflush(nullptr);
  _exit(0);
}

// While ranks run, this process must see their ends: a program that ignores SIGCHLD, or reaps in a handler of its own,
// would lose them.
class DefaultChildSignal {
 public:
  DefaultChildSignal() { sigaction(SIGCHLD, &kDefault, &before_); }
  DefaultChildSignal(const DefaultChildSignal&) = delete;
  ~DefaultChildSignal() { restore(); }
  // Also for a rank, which gets the program's handler.
  void restore() const { sigaction(SIGCHLD, &before_, nullptr); }

 private:
  static constexpr struct sigaction kDefault {};
  struct sigaction before_ {};
};

class Ranks {
 public:
  Ranks(int count, const std::function<void(int)>& rank_main);
  ~Ranks() { kill_all(); }
  // The first error, as soon as there is one; none once all have succeeded.
  std::optional<Error> wait();
  void stop(Duration grace);

 private:
  struct Child {
    pid_t pid = -1;
    bool alive = true;
    launch::Exit exit;
  };
  int alive() const {
    return int(std::count_if(children_.begin(), children_.end(), [](const Child& c) { return c.alive; }));
  }
  // Waits for an error or an end, at most until `deadline`; reads and reaps what there is.
  void wait_for_event(const std::optional<Deadline>& deadline);
  void signal_all(int signal);
  void kill_all();
  std::optional<Error> cause() const;

  const DefaultChildSignal child_signal_;
  const SpawnRendezvous rendezvous_;
  Fd error_pipe_;
  std::vector<Child> children_;
  std::vector<RankError> errors_;
};

Ranks::Ranks(int count, const std::function<void(int)>& rank_main) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Exception(system_error(errno, "could not make a pipe for the ranks"));
  error_pipe_ = Fd(ends[0]);
  const Fd writing(ends[1]);
  set_nonblocking(error_pipe_.get(), true).or_throw();
  std::fflush(nullptr);  // else each rank would print it again
  const pid_t parent = getpid();
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) child_signal_.restore();
    if (pid == 0) be_a_rank(rank, count, rendezvous_, writing.get(), parent, rank_main);
    if (pid < 0) {
      const int cause = errno;
      kill_all();
      throw Exception(system_error(cause, "could not start rank " + std::to_string(rank),
                                   "raise the limit of processes (ulimit -u), or ask for fewer ranks"));
    }
    children_.push_back({.pid = pid});
  }
}

void Ranks::wait_for_event(const std::optional<Deadline>& deadline) {
  std::vector<Fd> ended;
  std::vector<pollfd> fds = {{error_pipe_.get(), POLLIN, 0}};
  for (const Child& child : children_) {
    if (!child.alive) continue;
    ended.emplace_back(int(syscall(SYS_pidfd_open, child.pid, 0)));
    fds.push_back({ended.back().get(), POLLIN, 0});
  }
  std::optional<Deadline> until = deadline;
  const bool all_pidfds = std::all_of(ended.begin(), ended.end(), [](const Fd& fd) { return bool(fd); });
  if (!all_pidfds) until = deadline ? deadline->at_most(kSpawnPoll) : Deadline::after(kSpawnPoll);
  poll(fds.data(), fds.size(), until ? until->poll_timeout_ms() : -1);
  RankError error{};
  while (read(error_pipe_.get(), &error, sizeof error) == ssize_t(sizeof error)) errors_.push_back(error);
  for (Child& child : children_) {
    int status = 0;
    if (!child.alive || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.alive = false;
    child.exit = launch::exit_of(status);
  }
}

std::optional<Error> Ranks::wait() {
  while (alive() > 0 && !cause()) wait_for_event({});
  if (!cause()) return std::nullopt;
  for (const Deadline moment = Deadline::after(kCauseLimit); alive() > 0 && !moment.expired();) wait_for_event(moment);
  return cause();
}

std::optional<Error> Ranks::cause() const {
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    const Child& child = children_[rank];
    if (!child.alive && child.exit.signal != 0)
      return Error{.code = Code::kPeerLost,
                   .detail = "rank " + std::to_string(rank) + " (pid " + std::to_string(child.pid) + ") " +
                             to_string(child.exit)};
  }
  const RankError* first = nullptr;
  for (const RankError& error : errors_) {
    if (!first || (names_another_rank(first->code) && !names_another_rank(error.code))) first = &error;
  }
  if (first) return Error{.code = first->code, .detail = "rank " + std::to_string(first->rank) + ": " + first->text};
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    const Child& child = children_[rank];
    if (!child.alive && !child.exit.ok())
      return Error{.code = Code::kPeerLost,
                   .detail = "rank " + std::to_string(rank) + " (pid " + std::to_string(child.pid) + ") " +
                             to_string(child.exit)};
  }
  return std::nullopt;
}

void Ranks::signal_all(int signal) {
  for (const Child& child : children_) {
    if (child.alive) kill(child.pid, signal);
  }
}

void Ranks::stop(Duration grace) {
  signal_all(SIGTERM);
  signal_all(SIGCONT);
  for (const Deadline end = Deadline::after(grace); alive() > 0 && !end.expired();) wait_for_event(end);
  kill_all();
}

void Ranks::kill_all() {
  signal_all(SIGKILL);
  for (const Deadline end = Deadline::after(kSpawnKillLimit); alive() > 0 && !end.expired();) wait_for_event(end);
}

}  // namespace

void spawn(int ranks, const std::function<void(int rank)>& rank_main, const SpawnOptions& options) {
  TUTTI_REQUIRE(ranks >= 1 && ranks <= launch::kMostRanksPerNode, "spawn() was asked for ", ranks, " ranks; 1 to ",
                launch::kMostRanksPerNode, " can be had");
  if (const int threads = threads_before_fork(); threads != 1) {
    throw Exception(Error{
        .code = Code::kUnsupported,
        .detail =
            "spawn() forks, and this process has " + std::to_string(threads) +
            " threads already: the copy would have only one of them, and locks of the others would never be released",
        .hint =
            "call spawn() before the first operation of LibTorch, before OpenMP and init(); or start the program with "
            "tutti run"});
  }
  Ranks running(ranks, rank_main);
  if (const auto error = running.wait()) {
    running.stop(options.grace);
    throw Exception(*error);
  }
}

}  // namespace tutti
