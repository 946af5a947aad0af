#include "tests/harness/ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"
#include "tutti/base/sanitizers.h"
#include "tutti/comm/inproc_world.h"
#include "tutti/runtime/init.h"
#include "tutti/store/server/server.h"

namespace tutti::test {
namespace {

#if TUTTI_ASAN || TUTTI_TSAN
constexpr double kSanitizerFactor = 4;  // of a test's time
#else
constexpr double kSanitizerFactor = 1;
#endif

// The text of an exception that `act` throws; empty if none.
std::string trouble_of(const std::function<void()>& act) {
  try {
    act();
    return {};
  } catch (const std::exception& e) {
    return *e.what() ? e.what() : "an exception without a message";
  }
}

void write_text(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n <= 0) return;
    at += std::size_t(n);
  }
}

std::string read_until_end(int fd) {
  std::string text;
  char part[4096];
  for (ssize_t n; (n = ::read(fd, part, sizeof part)) > 0;) text.append(part, std::size_t(n));
  return text;
}

struct Child {
  pid_t pid = -1;
  Fd go;      // the address of the store is written here
  Fd report;  // the child's trouble comes from here
};

[[noreturn]] void be_rank(int rank, int size, int go, int report, const RankBody& body, const WorldOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const char* stale :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "TUTTI_INIT", "TUTTI_SECRET"})
    ::unsetenv(stale);
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
  ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", std::to_string(size).c_str(), 1);
  ::setenv("TUTTI_SECRET", "the secret of all these tests", 1);
  ::setenv("TUTTI_JOB", "test", 1);
  ::setenv("TUTTI_ALGORITHM", options.algorithm.c_str(), 1);
  ::setenv("TUTTI_TRANSPORT", options.transport.c_str(), 1);
  ::setenv("TUTTI_TIMEOUT", (std::to_string(options.timeout) + "s").c_str(), 1);
  ::setenv("TUTTI_LEAVE_TIMEOUT", (std::to_string(options.leave_timeout) + "s").c_str(), 1);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (options.environment_of)
    for (const auto& [name, value] : options.environment_of(rank)) ::setenv(name.c_str(), value.c_str(), 1);
  const std::string store = read_until_end(go);
  if (!::getenv("TUTTI_INIT")) ::setenv("TUTTI_STORE", store.c_str(), 1);
  const std::string trouble = trouble_of([&] {
    Group world = init();
    body(world);
  });
  write_text(report, trouble);
  std::fflush(nullptr);
  ::_exit(trouble.empty() ? 0 : 1);
}

}  // namespace

std::vector<Outcome> run_threads(int size, const RankBody& body, const WorldOptions& options) {
  std::vector<Outcome> outcomes(size);
  std::vector<Group> worlds = make_inproc_world(size, {.algorithm = options.algorithm,
                                                       .network = options.network,
                                                       .collective_timeout = from_seconds(options.timeout),
                                                       .leave_timeout = from_seconds(options.leave_timeout),
                                                       .flight_folder = options.flight_folder});
  std::vector<std::atomic<bool>> done(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank, world = std::move(worlds[rank])]() mutable {
      outcomes[rank].error = trouble_of([&] {
        Group mine = std::move(world);
        body(mine);
      });
      done[rank].store(true);
      done[rank].notify_all();
    });
  worlds.clear();
  std::thread watchdog([&] {
    const double seconds = options.watchdog * kSanitizerFactor;
    const auto deadline = Deadline::after_seconds(seconds);
    for (int rank = 0; rank < size; ++rank)
      while (!done[rank].load()) {
        if (deadline.expired()) {
          std::fprintf(stderr, "watchdog: rank %d of %d is still at work after %.0f s\n", rank, size, seconds);
          std::abort();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
  });
  for (std::thread& thread : threads) thread.join();
  watchdog.join();
  return outcomes;
}

namespace {

// Ranks whose job fails write flight records somewhere: here, for the time of one world.
class FlightFolder {
 public:
  FlightFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-flight-XXXXXX";
    if (!::mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
  }
  FlightFolder(const FlightFolder&) = delete;
  ~FlightFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::vector<Outcome> run_processes(int size, const RankBody& body, const WorldOptions& wanted) {
  std::fflush(nullptr);
  const FlightFolder flight;
  WorldOptions options = wanted;
  options.environment.emplace("TUTTI_FLIGHT_DIR", flight.path());
  std::vector<Child> children(size);
  for (int rank = 0; rank < size; ++rank) {
    int go[2], report[2];
    if (::pipe(go) != 0 || ::pipe(report) != 0) throw Exception(system_error(errno, "pipe"));
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork failed");  // -1 is "everybody" to kill()
    if (pid == 0) {
      for (Child& earlier : children) earlier.go.reset(), earlier.report.reset();
      ::close(go[1]);
      ::close(report[0]);
      be_rank(rank, size, go[0], report[1], body, options);
    }
    ::close(go[0]);
    ::close(report[1]);
    children[rank] = {pid, Fd(go[1]), Fd(report[0])};
  }
  // The server's thread starts after the last fork.
  auto server =
      StoreServer::start(transport::Address{.host = "127.0.0.1"},
                         transport::Credentials{.secret = transport::Secret::from_text("the secret of all these tests"),
                                                .job = "test"})
          .or_throw();
  for (Child& child : children) {
    write_text(child.go.get(), to_string(server->address()));
    child.go.reset();
  }
  std::vector<Outcome> outcomes(size);
  const auto deadline = Deadline::after_seconds(options.watchdog * kSanitizerFactor);
  for (int rank = 0; rank < size; ++rank) {
    Child& child = children[rank];
    pollfd wait{child.report.get(), POLLIN, 0};
    if (::poll(&wait, 1, deadline.poll_timeout_ms()) <= 0) {
      outcomes[rank].hung = true;
      ::kill(child.pid, SIGKILL);
    }
    outcomes[rank].error = read_until_end(child.report.get());
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    if (WIFEXITED(status)) outcomes[rank].exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcomes[rank].signal = WTERMSIG(status);
  }
  return outcomes;
}

std::string describe(const std::vector<Outcome>& outcomes) {
  std::string text;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& o = outcomes[rank];
    if (o.ok()) continue;
    text += "rank " + std::to_string(rank) + ": " + (o.hung ? "hung; " : "") +
            (o.signal ? std::string(strsignal(o.signal)) + "; " : "") + "exit code " + std::to_string(o.exit_code) +
            "; " + o.error + "\n";
  }
  return text;
}

}  // namespace tutti::test
