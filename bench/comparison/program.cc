// One poll() over the outputs of all of them. Each is the head of a process group, which is ended as one.
#include "bench/comparison/program.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "tutti/base/text.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/process.h"

namespace tutti::bench {
namespace {

constexpr std::size_t kLastWords = 2000;  // bytes of standard error in an error's text

class Child {
 public:
  Child(launch::ChildProcess process, std::string name, bool is_server)
      : process_(std::move(process)), name_(std::move(name)), is_server_(is_server) {}
  Child(Child&& other) noexcept
      : process_(std::move(other.process_)),
        name_(std::move(other.name_)),
        is_server_(other.is_server_),
        out_(std::move(other.out_)),
        err_(std::move(other.err_)),
        ended_(other.ended_),
        exit_(other.exit_) {
    other.ended_ = true;
  }
  ~Child() {
    if (ended_) return;
    ::kill(-process_.pid, SIGKILL);
    ::waitpid(process_.pid, nullptr, 0);
  }

  void watch(std::vector<pollfd>& fds) const {
    for (const Fd* fd : {&process_.output, &process_.errors})
      if (*fd) fds.push_back({fd->get(), POLLIN, 0});
  }
  void read() {
    read(process_.output, out_);
    read(process_.errors, err_);
  }
  // Whether it has; its outputs may still hold something.
  bool has_ended() {
    int status = 0;
    if (!ended_ && ::waitpid(process_.pid, &status, WNOHANG) == process_.pid) {
      exit_ = launch::exit_of(status);
      ended_ = true;
      ::kill(-process_.pid, SIGKILL);  // what it may have left in its process group
    }
    return ended_;
  }

  bool is_server() const { return is_server_; }
  bool is_bad() const { return ended_ && (is_server_ || !exit_.ok()); }
  const std::string& out() const { return out_; }
  Error trouble() const {
    std::string words(trim(err_.empty() ? out_ : err_));
    if (words.size() > kLastWords) words = "... " + words.substr(words.size() - kLastWords);
    return {.code = Code::kSystem,
            .detail = name_ + " " + to_string(exit_) + (words.empty() ? "" : "; its last words: " + words)};
  }

 private:
  static void read(Fd& fd, std::string& text) {
    char buffer[65536];
    while (fd) {
      const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
      if (got > 0)
        text.append(buffer, std::size_t(got));
      else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        fd.reset();
      else
        return;
    }
  }

  launch::ChildProcess process_;
  std::string name_;
  bool is_server_;
  std::string out_, err_;
  bool ended_ = false;
  launch::Exit exit_;
};

Result<Fd> memory_with(const std::string& text) {
  Fd memory(::memfd_create("tutti-input", MFD_CLOEXEC));
  if (!memory || ::write(memory.get(), text.data(), text.size()) != ssize_t(text.size()))
    return system_error(errno, "could not keep a program's input in memory");
  ::lseek(memory.get(), 0, SEEK_SET);
  return memory;
}

Result<Child> start(const Program& program) {
  const std::string name = std::filesystem::path(program.path).filename();
  launch::ProcessSpec spec{
      .path = program.path, .arguments = {program.path}, .environment = launch::to_strings(program.environment)};
  spec.arguments.insert(spec.arguments.end(), program.arguments.begin(), program.arguments.end());
  Fd input;
  if (!program.input.empty()) {
    input = TUTTI_TRY(memory_with(program.input));
    spec.input = input.get();
  }
  return Child(TUTTI_TRY(launch::start_process(spec)), name, program.is_server);
}

}  // namespace

Environment clean_environment() {
  Environment environment = current_environment();
  (void)launch::remove_stale(environment);
  return environment;
}

std::optional<std::string> find_in_path(const std::string& name) {
  const auto found = launch::find_program(name, env("PATH").value_or("/usr/bin:/bin") + ":/usr/sbin:/sbin");
  return found.ok() ? std::optional(*found) : std::nullopt;
}

Result<std::string> run_together(const std::vector<Program>& programs, Deadline deadline) {
  std::vector<Child> children;
  for (const Program& program : programs) children.push_back(TUTTI_TRY(start(program)));
  for (;;) {
    std::vector<pollfd> fds;
    for (const Child& child : children) child.watch(fds);
    // A program that closes its outputs before it ends is looked at again after a while.
    constexpr int kLookAgain = 100;
    (void)::poll(fds.data(), fds.size(), std::min(deadline.poll_timeout_ms(), kLookAgain));
    bool all_ended = true;
    for (Child& child : children) {
      child.read();
      // Whether its outputs are closed says nothing: a descendant may hold them.
      if (child.has_ended()) child.read();
      all_ended = all_ended && (child.has_ended() || child.is_server());
      if (child.is_bad()) return child.trouble();
    }
    if (all_ended) return children[0].out();
    if (deadline.expired())
      return deadline.error(std::filesystem::path(programs[0].path).filename().string() + " has not ended");
  }
}

}  // namespace tutti::bench
