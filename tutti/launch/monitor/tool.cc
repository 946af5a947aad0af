#include "tutti/launch/monitor/tool.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tutti/base/env.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/program.h"

namespace tutti {
namespace {

constexpr std::size_t kMostOutput = 8 << 20;
constexpr auto kStartLimit = std::chrono::seconds(2);

}  // namespace

std::optional<Tool> Tool::start(const std::string& name, std::vector<std::string> arguments, Deadline deadline) {
  const auto path = find_program(name, env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  if (!path.ok()) return {};
  Environment environment = current_environment();
  environment["LC_ALL"] = "C";
  environment.erase("DEBUGINFOD_URLS");  // or gdb would ask a server in the net
  arguments.insert(arguments.begin(), name);
  auto process = start_process({.path = *path,
                                .arguments = std::move(arguments),
                                .environment = to_strings(environment),
                                .patience = kStartLimit});
  if (!process.ok()) return {};
  return Tool(*std::move(process), deadline);
}

void Tool::take() {
  char bytes[16 * 1024];
  const ssize_t count = ::read(process_.output.get(), bytes, sizeof bytes);
  if (count > 0 && output_.size() < kMostOutput) output_.append(bytes, std::size_t(count));
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) process_.output.reset();
}

void Tool::read() {
  char bytes[4096];
  const ssize_t count = ::read(process_.errors.get(), bytes, sizeof bytes);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) process_.errors.reset();
}

void Tool::listen(PollSet& events) {
  events.watch(process_.output.get(), POLLIN, [this] { take(); });
  events.watch(process_.errors.get(), POLLIN, [this] { read(); });
  events.wake_at(deadline_.at());
}

bool Tool::over() {
  if (!process_.output) return true;
  if (!deadline_.expired()) return false;
  ::kill(process_.pid, SIGKILL);
  process_.output.reset();
  process_.errors.reset();
  return true;
}

std::string Tool::finish() && {
  while (!over()) {
    PollSet events;
    listen(events);
    events.wait();
  }
  return std::move(output_);
}

}  // namespace tutti
