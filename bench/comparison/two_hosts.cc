// A process each keeps a host's namespaces open: `sleep`, under `unshare`. All else goes through `nsenter`. The three
// are parts of util-linux and coreutils, so they are everywhere; `ip` is not. The namespaces, and the cable with them,
// are gone when the sleepers are, and these die with this process.
//
// Each host has a /dev/shm of its own: Open MPI names its shared memory after the host and the local rank, and the two
// hosts would take one another's.
#include "bench/comparison/two_hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tutti/base/text.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/process.h"

namespace tutti::bench {
namespace {

constexpr Duration kHostsPatience = std::chrono::seconds(20);

Error cannot_lay(const std::string& why,
                 const std::string& hint = "run as root, or on a system that lets users make user namespaces") {
  return {.code = Code::kUnsupported,
          .detail = "cannot make two network namespaces here: " + std::string(trim(why)),
          .hint = hint};
}

}  // namespace

TwoHosts::~TwoHosts() {
  for (const int pid : holders_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

// Starts a process that lives until we end it, and waits until it says that it is where it should be.
Result<int> TwoHosts::hold(std::vector<std::string> command) {
  const auto path = find_in_path(command[0]);
  if (!path) return cannot_lay("there is no " + command[0], "Debian: util-linux");
  for (const char* word : {"sh", "-c", "mount -t tmpfs tmpfs /dev/shm && echo in && exec sleep infinity"})
    command.emplace_back(word);
  const launch::ChildProcess child = TUTTI_TRY(launch::start_process(
      {.path = *path, .arguments = command, .environment = launch::to_strings(clean_environment())}));
  holders_.push_back(child.pid);
  const Deadline deadline = Deadline::after(kHostsPatience);
  std::string said, complaint;
  for (;;) {
    pollfd fds[] = {{child.output.get(), POLLIN, 0}, {child.errors.get(), POLLIN, 0}};
    (void)::poll(fds, 2, deadline.poll_timeout_ms());
    char buffer[512];
    ssize_t got;
    while ((got = ::read(child.errors.get(), buffer, sizeof buffer)) > 0) complaint.append(buffer, std::size_t(got));
    while ((got = ::read(child.output.get(), buffer, sizeof buffer)) > 0) said.append(buffer, std::size_t(got));
    if (trim(said) == "in") return int(child.pid);
    if (got == 0) return cannot_lay(complaint.empty() ? command[0] + " ended" : complaint);
    if (deadline.expired()) return cannot_lay(command[0] + " does not answer");
  }
}

Result<std::unique_ptr<TwoHosts>> TwoHosts::make() {
  const auto nsenter = find_in_path("nsenter");
  if (!nsenter) return cannot_lay("there is no nsenter", "Debian: util-linux");
  if (!find_in_path("ip")) return cannot_lay("there is no ip", "Debian: iproute2");
  std::unique_ptr<TwoHosts> hosts(new TwoHosts);
  hosts->nsenter_ = *nsenter;
  hosts->own_user_ = ::geteuid() != 0;
  if (hosts->own_user_) {
    TUTTI_TRY(hosts->hold({"unshare", "--user", "--map-root-user", "--net", "--mount"}));
    std::vector<std::string> command = hosts->entering(0);
    command[0] = "nsenter";
    for (const char* word : {"unshare", "--net", "--mount"}) command.emplace_back(word);
    TUTTI_TRY(hosts->hold(command));
  } else {
    TUTTI_TRY(hosts->hold({"unshare", "--net", "--mount"}));
    TUTTI_TRY(hosts->hold({"unshare", "--net", "--mount"}));
  }
  TUTTI_TRY(hosts->lay_cable());
  return hosts;
}

Status TwoHosts::lay_cable() {
  const auto shell = [&](int host, const std::string& script) {
    return run_program(on(host, {.path = "/bin/sh", .arguments = {"-c", script}, .environment = clean_environment()}),
                       Deadline::after(kHostsPatience));
  };
  const auto laid = shell(0, "ip link add cable type veth peer name cable netns " + std::to_string(holders_[1]));
  if (!laid.ok()) return cannot_lay(laid.error().detail);
  for (const int host : {0, 1}) {
    const auto up = shell(host, std::string("ip link set lo up && ip address add ") + kAddress[host] +
                                    "/24 dev cable && ip link set cable up");
    if (!up.ok()) return cannot_lay(up.error().detail);
  }
  return {};
}

std::vector<std::string> TwoHosts::entering(int host) const {
  const std::string pid = std::to_string(holders_[std::size_t(host)]);
  std::vector<std::string> command = {nsenter_, "--target", pid, "--net", "--mount"};
  if (own_user_) command.insert(command.end(), {"--user", "--preserve-credentials"});
  return command;
}

Program TwoHosts::on(int host, Program program) const {
  std::vector<std::string> arguments = entering(host);
  arguments.erase(arguments.begin());
  arguments.push_back(program.path);
  arguments.insert(arguments.end(), program.arguments.begin(), program.arguments.end());
  program.path = nsenter_;
  program.arguments = std::move(arguments);
  return program;
}

}  // namespace tutti::bench
