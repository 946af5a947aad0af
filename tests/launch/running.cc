// Everybody below a Running carries a variable with a mark of its own, so the census finds them by /proc/*/environ
// whatever session, group or parent they have moved to.
#include "tests/launch/running.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tutti/base/sanitizers.h"
#include "tutti/launch/environment.h"

namespace tutti::testing {
namespace {

using Clock = std::chrono::steady_clock;
#if TUTTI_ASAN || TUTTI_TSAN
constexpr auto kRunPatience = std::chrono::seconds(240);
#else
constexpr auto kRunPatience = std::chrono::seconds(60);
#endif

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::vector<pid_t> processes() {
  std::vector<pid_t> pids;
  DIR* const dir = opendir("/proc");
  while (const dirent* entry = readdir(dir)) {
    if (const pid_t pid = std::atoi(entry->d_name); pid > 0) pids.push_back(pid);
  }
  closedir(dir);
  return pids;
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string worker() { return TUTTI_TEST_WORKER; }

Running::Running(std::vector<std::string> arguments, std::map<std::string, std::string> changes, std::string input,
                 const std::vector<std::string>& entering) {
  static std::atomic<int> number{0};
  mark_ = std::to_string(getpid()) + "." + std::to_string(number++);
  auto environment = current_environment();
  for (const char* name :
       {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "TUTTI_SECRET", "TUTTI_LOG", "CLICOLOR_FORCE"})
    environment.erase(name);
  for (const auto& [name, value] : changes)
    value.empty() ? void(environment.erase(name)) : void(environment[name] = value);
  environment["TUTTI_TEST_MARK"] = mark_;
  if (!changes.count("TUTTI_FLIGHT_DIR") && !changes.count("TMPDIR"))  // what failing ranks leave goes with this object
    environment["TUTTI_FLIGHT_DIR"] = flight_.path();
  const auto variables = launch::to_strings(environment);
  arguments.insert(arguments.begin(), TUTTI_TEST_COMMAND);
  arguments.insert(arguments.begin(), entering.begin(), entering.end());
  std::vector<char*> argv, envp;
  for (const auto& text : arguments) argv.push_back(const_cast<char*>(text.c_str()));
  for (const auto& text : variables) envp.push_back(const_cast<char*>(text.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) std::abort();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");  // -1 is "everybody" to kill()
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    execve(argv[0], argv.data(), envp.data());
    _exit(126);
  }
  close(in[0]), close(out[1]), close(err[1]);
  [[maybe_unused]] const auto written = write(in[1], input.data(), input.size());
  close(in[1]);
  out_ = out[0], err_ = err[0];
}

Running::~Running() {
  if (!waited_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) close(out_);
  if (err_ >= 0) close(err_);
}

bool Running::pump(int timeout_ms) {
  pollfd fds[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  poll(fds, 2, timeout_ms);
  for (int i = 0; i < 2; ++i) {
    int& fd = i ? err_ : out_;
    if (!fds[i].revents || fd < 0) continue;
    char buffer[65536];
    const auto got = read(fd, buffer, sizeof buffer);
    if (got > 0) {
      (i ? ended_.err : ended_.out).append(buffer, std::size_t(got));
    } else {
      close(fd);
      fd = -1;
    }
  }
  return out_ >= 0 || err_ >= 0;
}

void Running::await_out(const std::string& text, int times) {
  for (const auto end = Clock::now() + kRunPatience; count(ended_.out, text) < std::size_t(times);) {
    if (!pump(100) || Clock::now() > end) {
      ADD_FAILURE() << "never saw '" << text << "' in:\n" << ended_.out << "\nerrors:\n" << ended_.err;
      return;
    }
  }
}

void Running::await_err(const std::string& text) {
  for (const auto end = Clock::now() + kRunPatience; ended_.err.find(text) == std::string::npos;) {
    if (!pump(100) || Clock::now() > end) {
      ADD_FAILURE() << "never saw '" << text << "' in the errors:\n" << ended_.err;
      return;
    }
  }
}

void Running::send(int signal) const { kill(pid_, signal); }

bool Running::is_over() const {
  siginfo_t info{};
  return waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

void Running::close_output() {
  close(out_);
  out_ = -1;
}

pid_t Running::agent() {
  for (const auto end = Clock::now() + kRunPatience; Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    for (const pid_t pid : processes()) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
      std::string skipped, state;
      pid_t parent = 0;
      if (file >> skipped >> skipped >> state >> parent && parent == pid_) return pid;
    }
  }
  throw std::runtime_error("the supervisor has no agent");  // and no number that kill() takes for "everybody"
}

Ended Running::wait() {
  const auto end = Clock::now() + kRunPatience;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (reading_) {
      pump(20);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (Clock::now() > end) {
      ADD_FAILURE() << "tutti run does not end; output:\n"
                    << ended_.out << "\nerrors:\n"
                    << ended_.err << "\nalive: " << census();
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      break;
    }
  }
  waited_ = true;
  for (int quiet = 0; quiet < 2 && pump(10);) {
    pollfd fds[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
    quiet = poll(fds, 2, 10) > 0 ? 0 : quiet + 1;
  }
  ended_.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended_;
}

std::string Running::census() {
  std::string names;
  for (const pid_t pid : processes()) {
    const std::string folder = "/proc/" + std::to_string(pid);
    if (read_file(folder + "/environ").find("TUTTI_TEST_MARK=" + mark_ + std::string(1, '\0')) == std::string::npos)
      continue;
    std::string command = read_file(folder + "/cmdline");
    for (char& c : command) c = c ? c : ' ';
    names += std::to_string(pid) + " " + command + "\n";
  }
  return names;
}

bool Running::nobody_left() {
  for (const auto end = Clock::now() + std::chrono::seconds(20); !census().empty();) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Ended run(std::vector<std::string> arguments, std::map<std::string, std::string> changes, std::string input) {
  Running running(std::move(arguments), std::move(changes), std::move(input));
  Ended ended = running.wait();
  EXPECT_TRUE(running.nobody_left()) << running.census();
  return ended;
}

Folder::Folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti_test_XXXXXX").string();
  if (!mkdtemp(pattern.data())) std::abort();
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tutti::testing
