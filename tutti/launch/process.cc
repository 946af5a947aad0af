// Finding: execve() tells a child in one error code that something is wrong. Checking before, in the parent, says what
// it is and what to do, before any rank is started.
//
// Starting: between fork() and execve() a child may call only functions that are safe after a fork in a threaded
// program, so everything that allocates is made before. The child becomes a process group of its own (one kill()
// reaches the rank and its helpers), in the agent's session, which has no terminal. It asks for SIGKILL at its parent's
// death, and then checks whether the parent died before it asked. A pipe that closes on execve() carries errno back if
// that fails. The wait for it has a limit, because a program on a dead network mount is neither run nor refused.
//
// Ending: a descendant that forked twice and changed its session still has a parent, and when that dies the nearest
// subreaper becomes its parent. So "kill all children, reap, repeat until there are none" reaches every descendant,
// without a guess about process groups, and without the risk of a reused pid: an unreaped child keeps its number.
#include "tutti/launch/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

Error usage(std::string detail, std::string hint = {}) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
}

bool is_executable_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// The executables of a folder.
std::vector<std::string> executables_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const dir = opendir(folder.empty() ? "." : folder.c_str());
  if (!dir) return names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(dir);
  return names;
}

// The path of the program of a folder whose name is nearest; none if none is near.
std::optional<std::string> nearest_program(const std::string& name, const std::string& folder) {
  const auto best = nearest(name, executables_in(folder));
  if (!best || !is_executable_file(folder + "/" + *best)) return std::nullopt;
  return folder.empty() ? *best : folder + "/" + *best;
}

// Checks the interpreter of a script that starts with "#!", and rejects a file that is neither a script nor ELF.
Status check_format(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};  // executable but not readable is legal
  std::array<char, 256> head{};
  const ssize_t size = read(file.get(), head.data(), head.size() - 1);
  if (size == 0) return usage("'" + path + "' is an empty file");
  if (size < 4) return {};
  const std::string_view text(head.data(), std::size_t(size));
  if (text.starts_with("\x7f"
                       "ELF"))
    return {};
  if (!text.starts_with("#!")) {
    return usage(
        "'" + path + "' is neither a program of this machine nor a script that starts with #!",
        "name its interpreter: tutti run ... " + std::string(path.ends_with(".py") ? "python3 " : "sh ") + path);
  }
  std::string_view line =
      trim(text.substr(2, text.find('\n') == std::string_view::npos ? std::string_view::npos : text.find('\n') - 2));
  const bool dos = text.find('\r') != std::string_view::npos && text.find('\r') < text.find('\n');
  if (dos) {
    return usage(
        "'" + path +
            "' has DOS line ends, so its interpreter is looked for under a name that ends in a carriage return",
        "convert it: sed -i 's/\\r$//' " + path);
  }
  const std::string interpreter(line.substr(0, line.find_first_of(" \t")));
  if (!is_executable_file(interpreter)) {
    return usage(
        "the interpreter '" + interpreter + "' of the script '" + path + "' does not exist or is not executable",
        "correct the script's first line, or start it with its interpreter: tutti run ... python3 " + path);
  }
  return {};
}

Result<std::string> check_path(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const int cause = errno;
    if (cause != ENOENT && cause != ENOTDIR) {
      return usage("the program '" + path + "' cannot be reached: " + std::strerror(cause));
    }
    const auto slash = path.find_last_of('/');
    return usage("the program '" + path + "' does not exist",
                 did_you_mean(nearest_program(path.substr(slash + 1), slash == 0 ? "/" : path.substr(0, slash))));
  }
  if (S_ISDIR(info.st_mode)) return usage("'" + path + "' is a folder, not a program");
  if (!S_ISREG(info.st_mode)) return usage("'" + path + "' is not a file that can be executed");
  if (access(path.c_str(), X_OK) != 0) {
    return usage("the program '" + path + "' is not executable",
                 path.ends_with(".py")      ? "start it with its interpreter: tutti run ... python3 " + path
                 : info.st_uid == geteuid() ? "if it is a program: chmod +x " + path
                                            : std::string());
  }
  TUTTI_TRY(check_format(path));
  return path;
}

constexpr const char* kDescriptorsHint = "raise the limit of open files (ulimit -n), or start fewer ranks";

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "could not make a pipe for a worker", kDescriptorsHint);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& text : strings) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// In the child; async-signal-safe only. Returns errno if it could not become the program.
int become_program(const char* path, char* const* arguments, char* const* environment, pid_t parent, int input,
                   int output, int errors, const std::vector<int>& inherited, const CoreMask& cores) {
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (getppid() != parent) _exit(128 + SIGKILL);
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0) return errno;
  for (const int fd : inherited) {
    if (fcntl(fd, F_SETFD, 0) != 0) return errno;
  }
  if (!cores.empty() &&
      sched_setaffinity(0, cores.size() * sizeof cores[0], reinterpret_cast<const cpu_set_t*>(cores.data())) != 0) {
    return errno;
  }
  execve(path, arguments, environment);
  return errno;
}

// 0 once the program runs, else errno.
Result<int> outcome_of_execve(const Fd& pipe, Deadline deadline, const std::string& path) {
  pollfd entry{pipe.get(), POLLIN, 0};
  while (poll(&entry, 1, deadline.poll_timeout_ms()) <= 0) {
    if (deadline.expired())
      return deadline.error("the kernel has not started '" + path + "'",
                            "its file system does not answer (a network mount?): does ls -l show the file?");
  }
  int cause = 0;
  return read(pipe.get(), &cause, sizeof cause) == ssize_t(sizeof cause) ? cause : 0;
}

struct ProcEntry {
  pid_t pid = -1, parent = -1;
  std::string name;
  char state = '?';
};

std::vector<ProcEntry> all_processes() {
  std::vector<ProcEntry> entries;
  DIR* const dir = opendir("/proc");
  if (!dir) return entries;
  while (const dirent* entry = readdir(dir)) {
    const auto pid = parse_int(entry->d_name);
    if (!pid) continue;
    std::ifstream file("/proc/" + std::string(entry->d_name) + "/stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    const auto open = line.find('('), close = line.rfind(')');  // the name may hold anything, ")" too
    if (open == std::string::npos || close == std::string::npos) continue;
    ProcEntry found{.pid = pid_t(*pid), .name = line.substr(open + 1, close - open - 1)};
    std::istringstream(line.substr(close + 1)) >> found.state >> found.parent;
    entries.push_back(std::move(found));
  }
  closedir(dir);
  return entries;
}

// The failures of execve() that the user can correct on the command line; others (memory, descriptors) are the
// machine's.
bool is_about_the_program(int cause) {
  switch (cause) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ENOEXEC:
    case E2BIG:
    case ELOOP:
    case EISDIR:
      return true;
    default:
      return false;
  }
}

std::string waits_for(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/wchan");
  std::string channel;
  std::getline(file, channel);
  return channel.empty() || channel == "0" ? "an unknown function of the kernel" : channel;
}

}  // namespace

Result<std::string> find_program(const std::string& name, const std::string& search_path) {
  if (name.empty()) return usage("the name of the program is empty");
  if (name.find('/') != std::string::npos) return check_path(name);
  for (const std::string& folder : split(search_path.empty() ? "/usr/local/bin:/usr/bin:/bin" : search_path, ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(path)) return check_path(path);
  }
  struct stat info {};
  if (stat(name.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return usage("'" + name + "' is a folder, not a program");
    return usage(
        "no program '" + name + "' in PATH",
        "there is one in this folder: ./" + name + (name.ends_with(".py") ? ", or python3 " + name : std::string()));
  }
  for (const std::string& folder : split(search_path, ':')) {
    if (const auto near = nearest_program(name, folder))
      return usage("no program '" + name + "' in PATH", did_you_mean(near));
  }
  return usage("no program '" + name + "' in PATH", "this folder has no file " + name + " either: give its path");
}

Exit exit_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return Exit{.signal = WTERMSIG(wait_status), .dumped = bool(WCOREDUMP(wait_status))};
  return Exit{.code = WEXITSTATUS(wait_status)};
}

std::string signal_name(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

std::string to_string(const Exit& exit) {
  if (exit.signal == 0) return "exited with code " + std::to_string(exit.code);
  std::string text = "was killed by " + signal_name(exit.signal);
  if (const char* const words = sigdescr_np(exit.signal); words && exit.signal != SIGKILL && exit.signal != SIGTERM) {
    std::string lower = words;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    text += " (" + lower + ")";
  }
  return exit.dumped ? text + ", core dumped" : text;
}

Result<ChildProcess> start_process(const ProcessSpec& spec) {
  Pipe output = TUTTI_TRY(make_pipe()), errors = TUTTI_TRY(make_pipe()), failure = TUTTI_TRY(make_pipe());
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) return system_error(errno, "could not open /dev/null for a worker", kDescriptorsHint);
  const std::vector<char*> arguments = pointers(spec.arguments), environment = pointers(spec.environment);
  const CoreMask cores = mask_of(spec.cpus);
  const pid_t parent = getpid();

  const auto started = now();
  const pid_t pid = fork();
  if (pid < 0)
    return system_error(errno, "could not start another process",
                        "raise the limit of processes (ulimit -u, pids cgroup), or ask for fewer ranks");
  if (pid == 0) {
    const int cause = become_program(spec.path.c_str(), arguments.data(), environment.data(), parent,
                                     spec.input >= 0 ? spec.input : nothing.get(), output.write.get(),
                                     errors.write.get(), spec.inherited, cores);
    [[maybe_unused]] const ssize_t told = write(failure.write.get(), &cause, sizeof cause);
    _exit(127);
  }
  failure.write.reset();
  const auto outcome = outcome_of_execve(failure.read, Deadline::after(spec.patience), spec.path);
  if (!outcome.ok()) {
    kill(pid, SIGKILL);
    return outcome.status();
  }
  if (const int cause = *outcome; cause != 0) {
    waitpid(pid, nullptr, 0);
    std::string hint;
    if (cause == ENOENT)
      hint = "the file is there, so the loader or interpreter that it names is not: is it built for this machine?";
    if (cause == ENOEXEC) hint = "it is not in a format that this machine runs: is it built for another kind of CPU?";
    if (cause == E2BIG) hint = "the arguments and the environment together are too long";
    Error error = system_error(cause, "could not execute '" + spec.path + "'", hint);
    if (is_about_the_program(cause)) error.code = Code::kUsage;
    return error;
  }
  TUTTI_TRY(set_nonblocking(output.read.get(), true));
  TUTTI_TRY(set_nonblocking(errors.read.get(), true));
  Fd pidfd(int(syscall(SYS_pidfd_open, pid, 0)));  // not reaped yet, so the number is the child's
  return ChildProcess{.pid = pid,
                      .started = started,
                      .pidfd = std::move(pidfd),
                      .output = std::move(output.read),
                      .errors = std::move(errors.read)};
}

void reset_inherited_state() {
  for (;;) {
    const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0 || fd > 2) {
      if (fd >= 0) close(fd);
      break;
    }
    fcntl(fd, F_SETFD, 0);
  }
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f then fails as on a full disk; workers get the default
}

void raise_descriptor_limit(std::size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
  limit.rlim_cur = std::min<rlim_t>(count, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

Status become_subreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return system_error(errno, "could not become the reaper of orphaned workers");
  return {};
}

Result<std::vector<Survivor>> end_descendants(Deadline deadline) {
  std::vector<Survivor> ended;
  const pid_t self = getpid();
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  sigset_t old_mask;
  pthread_sigmask(SIG_BLOCK, &child_signal, &old_mask);
  const auto restore = [&] { pthread_sigmask(SIG_SETMASK, &old_mask, nullptr); };
  for (;;) {
    pid_t reaped;
    while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) {
      restore();
      return ended;
    }
    ProcEntry stuck;
    for (const ProcEntry& entry : all_processes()) {
      if (entry.parent != self || entry.state == 'Z') continue;
      kill(entry.pid, SIGKILL);
      stuck = entry;
      const bool known = std::any_of(ended.begin(), ended.end(), [&](const Survivor& s) { return s.pid == entry.pid; });
      if (!known) ended.push_back({entry.pid, entry.name});
    }
    if (deadline.expired()) {
      restore();
      return deadline.error("process " + std::to_string(stuck.pid) + " (" + stuck.name +
                                ") does not end on SIGKILL: it waits in the kernel for " + waits_for(stuck.pid),
                            "look at its device or file system; kill it by hand when that answers");
    }
    // Until the next death, or a short time: an orphan that arrives alive sends no signal.
    const timespec pause{0, 10'000'000};
    sigtimedwait(&child_signal, nullptr, &pause);
  }
}

}  // namespace tutti::launch
