// A command that ssh starts gets no signal when the ssh launcher is interrupted or dies: its standard input just ends.
// So this process stays between ssh and the launcher proper, and turns what arrives on standard input into signals. The
// launcher itself reads /dev/null: standard input belongs to the session.
//
// No other node misses a launcher that ends before it has joined them. So the launcher writes to an eventfd when it has
// joined, and the last line on standard output says whether it had.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/output/lines.h"
#include "tutti/launch/process.h"
#include "tutti/launch/ssh/ssh.h"
#include "tutti/transport/socket.h"
#include "tutti/version.h"

namespace tutti::launch {
namespace {

constexpr std::size_t kLongestInstructions = 16 << 20;
constexpr const char* kJoinedVariable = "TUTTI_NODE_MET_FD";
constexpr auto kLastLineLimit = std::chrono::seconds(5);       // for the session to take the last line
constexpr auto kInstructionsLimit = std::chrono::minutes(10);  // other hosts may not have sent their greeting yet

Greeting greeting() {
  Greeting mine{.version = TUTTI_VERSION,
                .host = host_name(),
                .address = {},
                .from = {},
                .addresses = transport::interface_addresses()};
  // "CLIENT PORT SERVER PORT", from sshd
  const auto words = split(env("SSH_CONNECTION").value_or(""), ' ');
  if (words.size() == 4) mine.from = words[0], mine.address = words[2];
  const auto first = listen(transport::Address{.host = "0.0.0.0"}),
             second = listen(transport::Address{.host = "0.0.0.0"});
  if (first.ok() && second.ok()) mine.master_port = first->address.port, mine.store_port = second->address.port;
  return mine;
}

// The first line of standard input. `rest`: the bytes that came after it.
Result<std::string> first_line(std::string& rest) {
  const Deadline deadline = Deadline::after(kInstructionsLimit);
  std::string line;
  for (;;) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, deadline.poll_timeout_ms()) <= 0) {
      if (deadline.expired()) return deadline.error("no instructions arrived from the host that starts the job");
      continue;
    }
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return Error{.code = Code::kUsage,
                   .detail = "the host that starts the job disconnected before it sent the command to run",
                   .hint = "tutti node is started by tutti run --hosts, not by hand"};
    line.append(bytes, std::size_t(count));
    if (const auto end = line.find('\n'); end != std::string::npos) {
      rest = line.substr(end + 1);
      line.resize(end);
      return line;
    }
    if (line.size() > kLongestInstructions)
      return Error{.code = Code::kLimit, .detail = "the instructions for this node are incomplete"};
  }
}

// `joined`: the descriptor on which the child reports that it has joined the other nodes.
Result<pid_t> start(const Instructions& instructions, const Fd& joined) {
  std::vector<std::string> words = instructions.arguments;
  words.insert(words.begin(), "tutti");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) return system_error(errno, "could not open /dev/null");
  std::error_code failed;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", failed);
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) return system_error(errno, "could not start the launcher of this node");
  if (pid == 0) {
    setenv(kJoinedVariable, std::to_string(joined.get()).c_str(), 1);
    (void)fcntl(joined.get(), F_SETFD, 0);
    ::signal(SIGPIPE, SIG_DFL);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent || dup2(nothing.get(), STDIN_FILENO) < 0) _exit(1);
    execv(self.c_str(), pointers.data());  // `ps` shows the name of this path
    execv("/proc/self/exe", pointers.data());
    _exit(127);
  }
  return pid;
}

// Passes signals on until the child ends; returns its exit code. `received`: bytes already read from standard input.
int attend(pid_t child, std::string_view received) {
  const Fd ended(int(syscall(SYS_pidfd_open, child, 0)));
  LineSplitter lines;
  const auto pass_on = [&](std::string_view line) {
    if (const auto signal = parse_signal(line)) kill(child, *signal);
  };
  lines.feed(received, pass_on);
  bool open = true;
  for (;;) {
    pollfd events[] = {{ended.get(), POLLIN, 0}, {open ? STDIN_FILENO : -1, POLLIN, 0}};
    // Without a pidfd (an old kernel) the end is polled.
    if (poll(events, 2, ended ? -1 : 100) < 0 && errno != EINTR) break;
    if (events[1].revents) {
      char bytes[4096];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
      if (count > 0) {
        lines.feed({bytes, std::size_t(count)}, pass_on);
      } else if (count == 0 || errno != EINTR) {
        open = false;
        kill(child, SIGTERM);
      }
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return exit_of(status).shell_code();
  }
  return 1;
}

}  // namespace

Result<int> run_ssh_node() {
  reset_inherited_state();
  ::signal(SIGPIPE, SIG_IGN);
  const std::string hello = encode(greeting()) + "\n";
  TUTTI_TRY(write_all(STDOUT_FILENO, std::as_bytes(std::span(hello)), "standard output"));
  std::string rest;
  const auto instructions = parse_instructions(TUTTI_TRY(first_line(rest)));
  if (!instructions) return Error{.code = Code::kMismatch, .detail = "the instructions for this node cannot be parsed"};
  if (chdir(instructions->folder.c_str()) != 0) {
    return Error{.code = Code::kUsage,
                 .detail = host_name() + " has no folder " + instructions->folder + ": " + std::strerror(errno),
                 .hint = "the job starts on each host in the folder where it was started here; make it, or share it"};
  }
  for (const auto& [name, value] : instructions->variables) setenv(name.c_str(), value.c_str(), 1);
  const Fd joined = TUTTI_TRY(make_eventfd());
  const int code = attend(TUTTI_TRY(start(*instructions, joined)), rest);
  eventfd_t count = 0;
  write_node_exit({.code = code, .joined = eventfd_read(joined.get(), &count) == 0});
  return code;
}

void write_node_exit(const NodeExit& exit) {
  const std::string text = encode(exit) + "\n";
  const Deadline deadline = Deadline::after(kLastLineLimit);
  for (std::string_view rest = text; !rest.empty() && !deadline.expired();) {
    const ssize_t put = write(STDOUT_FILENO, rest.data(), rest.size());
    if (put > 0) rest.remove_prefix(std::size_t(put));
    if (put >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return;             // nothing reads it
    pollfd room{STDOUT_FILENO, POLLOUT, 0};  // the launcher had made it non-blocking
    poll(&room, 1, deadline.poll_timeout_ms());
  }
}

Fd take_joined_descriptor() {
  const auto fd = parse_int(env(kJoinedVariable).value_or(""));
  unsetenv(kJoinedVariable);
  if (!fd || fcntl(int(*fd), F_SETFD, FD_CLOEXEC) != 0) return {};
  return Fd(int(*fd));
}

void report_joined(const Fd& ssh_node) {
  if (ssh_node) (void)eventfd_write(ssh_node.get(), 1);
}

}  // namespace tutti::launch
