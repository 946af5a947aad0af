// A process each keeps the namespaces of a host open: `cat`, under `unshare`, until its input ends, which it does when
// this process is gone, however it went. All else goes through `nsenter`. One more namespace holds a bridge, the
// switch, with a port for each host.
//
// What is lost is dropped where it arrives (a packet that the sender's own system drops counts as local congestion, and
// TCP then behaves as it never would on a wire), by a classic BPF program on the receiver's interface. It knows senders
// by the last bytes of their Ethernet address, which serves IPv4, IPv6 and ARP alike.
#include "tests/hosts/hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/process.h"

namespace tutti::testing {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

Error cannot(const std::string& why) {
  return {.code = Code::kUnsupported, .detail = "cannot make hosts of namespaces here: " + std::string(trim(why))};
}

Environment plain_environment() {
  Environment environment = current_environment();
  environment["PATH"] = kPath;
  environment["LC_ALL"] = "C";
  return environment;
}

// Reads both pipes until `enough` is content with standard output or both have ended; what they said.
struct Said {
  std::string output, errors;
  bool in_time = true;
};
Said listen_to(const launch::ChildProcess& child, const std::function<bool(const std::string&)>& enough) {
  const Deadline deadline = Deadline::after(kPatience);
  Said said;
  bool open[2] = {true, true};
  while ((open[0] || open[1]) && !enough(said.output)) {
    pollfd fds[] = {{open[0] ? child.output.get() : -1, POLLIN, 0}, {open[1] ? child.errors.get() : -1, POLLIN, 0}};
    (void)::poll(fds, 2, deadline.poll_timeout_ms());
    for (int i = 0; i < 2; ++i) {
      if (!fds[i].revents) continue;
      char buffer[4096];
      const ssize_t got = ::read(fds[i].fd, buffer, sizeof buffer);
      if (got > 0) (i ? said.errors : said.output).append(buffer, std::size_t(got));
      if (got == 0) open[i] = false;
    }
    if (deadline.expired()) {
      said.in_time = false;
      break;
    }
  }
  return said;
}

std::string namespace_of(pid_t pid, const char* kind) {
  std::error_code gone;
  return fs::read_symlink("/proc/" + std::to_string(pid) + "/ns/" + kind, gone);
}

// The last bytes of a host's Ethernet address.
unsigned mark(int host) { return unsigned(host) + 1; }

}  // namespace

std::string Hosts::name(int host) { return std::string("node-") + char('a' + host); }
std::string Hosts::address(int host) { return "10.77.0." + std::to_string(host + 1); }
std::string Hosts::address6(int host) { return "fd77::" + std::to_string(host + 1); }
std::string Hosts::folder(int host) const { return folder_ + "/" + name(host); }

Result<std::unique_ptr<Hosts>> Hosts::make(int count) {
  std::unique_ptr<Hosts> hosts(new Hosts);
  for (const char* tool : {"unshare", "nsenter", "ip", "tc", "mount", "hostname"}) {
    if (!launch::find_program(tool, kPath).ok())
      return cannot(std::string("there is no ") + tool + " (Debian: iproute2, util-linux, mount, hostname)");
  }
  hosts->nsenter_ = TUTTI_TRY(launch::find_program("nsenter", kPath));
  hosts->cables_.resize(std::size_t(count), Cable{.cut_from = std::vector<bool>(std::size_t(count))});
  hosts->own_user_ = ::geteuid() != 0;
  std::string pattern = fs::temp_directory_path() / "tutti-hosts-XXXXXX";
  if (!::mkdtemp(pattern.data())) return system_error(errno, "cannot make a folder for hosts");
  hosts->folder_ = pattern;
  TUTTI_TRY(hosts->prepare());
  return hosts;
}

Status Hosts::prepare() {
  const int count = int(cables_.size());
  std::string known = "127.0.0.1 localhost\n::1 localhost\n";
  for (int host = 0; host < count; ++host)
    known += address(host) + " " + name(host) + "\n" + address6(host) + " " + name(host) + "\n";
  std::vector<std::string> first = {"unshare", "--net", "--mount", "--uts"};
  if (own_user_) first.insert(first.end(), {"--user", "--map-root-user"});
  first.insert(first.end(), {"sh", "-c", "echo in && exec cat"});
  TUTTI_TRY(hold(first));
  for (int host = 0; host < count; ++host) {
    fs::create_directories(folder(host));
    const std::string file = folder(host) + ".hosts";
    TUTTI_TRY(write_file(file, known));
    std::vector<std::string> command;
    if (own_user_)
      command = {"nsenter", "--target", std::to_string(holders_[0]), "--user", "--preserve-credentials",
                 "--net",   "--mount"};
    command.insert(command.end(), {"unshare", "--net", "--mount", "--uts", "sh", "-c",
                                   "hostname " + name(host) + " && mount -t tmpfs tmpfs /dev/shm && mount --bind '" +
                                       file + "' /etc/hosts && echo in && exec cat"});
    TUTTI_TRY(hold(command));
  }
  return lay_cables();
}

Hosts::~Hosts() {
  for (int host = 0; host < count(); ++host) {
    for (const pid_t pid : processes(host)) ::kill(pid, SIGKILL);
  }
  holders_.insert(holders_.end(), carriers_.begin(), carriers_.end());
  for (const pid_t pid : holders_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

// Starts a process that lives until its input ends, and waits until it says that it is where it should be.
Result<pid_t> Hosts::hold(std::vector<std::string> command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "pipe");
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  const launch::ChildProcess child =
      TUTTI_TRY(launch::start_process({.path = TUTTI_TRY(launch::find_program(command[0], kPath)),
                                       .arguments = command,
                                       .environment = launch::to_strings(plain_environment()),
                                       .input = reading.get()}));
  holders_.push_back(child.pid);
  holds_.push_back(std::move(writing));
  const Said said = listen_to(child, [](const std::string& output) { return output == "in\n"; });
  if (said.output != "in\n") return cannot(said.errors.empty() ? command[0] + " does not answer" : said.errors);
  return child.pid;
}

Status Hosts::lay_cables() {
  std::string script = "ip link add switch type bridge mcast_snooping 0 && ip link set switch up";
  for (int host = 0; host < count(); ++host) {
    const std::string port = "port" + std::to_string(host);
    script += " && ip link add " + port + " type veth peer name eth0 netns " + std::to_string(holders_[host + 1]) +
              " && ip link set " + port + " master switch up";
  }
  std::vector<std::string> command = entering(-1);
  command.insert(command.end(), {"sh", "-c", script});
  if (const auto laid = run(command); !laid.ok()) return cannot(laid.error().detail);
  for (int host = 0; host < count(); ++host) TUTTI_TRY(set_addresses(host));
  return {};
}

Status Hosts::set_addresses(int host) const {
  char ether[32];
  std::snprintf(ether, sizeof ether, "02:00:00:00:00:%02x", mark(host));
  // The kernel's own answers to routers and duplicate addresses would only cost time.
  const auto up =
      shell(host, "ip link set lo up && ip link set eth0 address " + std::string(ether) + " && ip address add " +
                      address(host) + "/24 dev eth0 && ip -6 address add " + address6(host) +
                      "/64 dev eth0 nodad && ip link set eth0 up && tc qdisc add dev eth0 clsact");
  if (!up.ok()) return cannot(up.error().detail);
  return {};
}

// -1: the switch.
std::vector<std::string> Hosts::entering(int host) const {
  const std::string pid = std::to_string(holders_[std::size_t(host + 1)]);
  std::vector<std::string> command = {nsenter_, "--target", pid, "--net", "--mount", "--uts"};
  if (own_user_) command.insert(command.end(), {"--user", "--preserve-credentials"});
  command.emplace_back("--");
  return command;
}

bool Hosts::enter(int host) const {
  const std::string own = "/proc/" + std::to_string(holders_[std::size_t(host + 1)]) + "/ns/";
  const auto open = [&](const char* kind) { return Fd(::open((own + kind).c_str(), O_RDONLY | O_CLOEXEC)); };
  const Fd user = open("user"), net = open("net"), mount = open("mnt"), uts = open("uts");
  return (!own_user_ || ::setns(user.get(), CLONE_NEWUSER) == 0) && ::setns(net.get(), CLONE_NEWNET) == 0 &&
         ::setns(uts.get(), CLONE_NEWUTS) == 0 && ::setns(mount.get(), CLONE_NEWNS) == 0;
}

Result<std::string> Hosts::run(std::vector<std::string> command) const {
  const launch::ChildProcess child =
      TUTTI_TRY(launch::start_process({.path = TUTTI_TRY(launch::find_program(command[0], kPath)),
                                       .arguments = command,
                                       .environment = launch::to_strings(plain_environment())}));
  const Said said = listen_to(child, [](const std::string&) { return false; });
  if (!said.in_time) ::kill(-child.pid, SIGKILL);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  const launch::Exit exit = launch::exit_of(status);
  if (exit.ok()) return said.output;
  return Error{.code = Code::kSystem,
               .detail = "'" + command.back() + "' " + to_string(exit) + ": " + std::string(trim(said.errors))};
}

Result<std::string> Hosts::shell(int host, const std::string& script) const {
  std::vector<std::string> command = entering(host);
  command.insert(command.end(), {"sh", "-c", script});
  return run(command);
}

// In place: what is bound there is this file, not its name.
Status Hosts::set_hosts_file(int host, const std::string& text) const {
  return write_file(folder(host) + ".hosts", text);
}

Status Hosts::cut(int from, int to) {
  cables_[std::size_t(to)].cut_from[std::size_t(from)] = true;
  return set_filter(to);
}

Status Hosts::partition(const std::vector<int>& side) {
  std::vector<bool> inside(cables_.size());
  for (const int host : side) inside[std::size_t(host)] = true;
  for (int to = 0; to < count(); ++to) {
    for (int from = 0; from < count(); ++from)
      if (inside[std::size_t(from)] != inside[std::size_t(to)])
        cables_[std::size_t(to)].cut_from[std::size_t(from)] = true;
    TUTTI_TRY(set_filter(to));
  }
  return {};
}

Status Hosts::lose(int host, double share) {
  cables_[std::size_t(host)].loss = share;
  return set_filter(host);
}

Status Hosts::block_datagrams(int host) {
  cables_[std::size_t(host)].no_datagrams = true;
  return set_filter(host);
}

Status Hosts::heal() {
  for (int host = 0; host < count(); ++host) {
    cables_[std::size_t(host)] = {.cut_from = std::vector<bool>(cables_.size())};
    TUTTI_TRY(set_filter(host));
  }
  return {};
}

// Instructions are "code jump-if-true jump-if-false operand"; 2 is drop, -1 "no opinion".
Status Hosts::set_filter(int host) const {
  constexpr const char* kDrop = "6 0 0 2";
  const Cable& cable = cables_[std::size_t(host)];
  std::vector<std::string> program;
  for (std::size_t from = 0; from < cable.cut_from.size(); ++from) {
    if (!cable.cut_from[from]) continue;
    program.insert(program.end(), {"32 0 0 8", "21 0 1 " + std::to_string(mark(int(from))), kDrop});
  }
  if (cable.no_datagrams)  // IPv4 whose protocol is 17
    program.insert(program.end(), {"40 0 0 12", "21 0 3 2048", "48 0 0 23", "21 0 1 17", kDrop});
  if (cable.loss > 0) {  // a random word, which the kernel gives as if it stood at a place of the packet
    const auto pass = std::uint64_t(cable.loss * 4294967295.0);
    program.insert(program.end(), {"32 0 0 4294963256", "53 1 0 " + std::to_string(pass), kDrop});
  }
  program.emplace_back("6 0 0 4294967295");
  return shell(host, "tc filter replace dev eth0 ingress protocol all prio 1 handle 1 bpf da bytecode '" +
                         std::to_string(program.size()) + "," + join(program, ",") + "'")
      .status();
}

Status Hosts::slow(int host, std::uint64_t bits_per_second) {
  return shell(host, "tc qdisc replace dev eth0 root tbf rate " + std::to_string(bits_per_second) +
                         "bit burst 64k latency 400ms")
      .status();
}

Status Hosts::roughen(int host, const Roughness& roughness) {
  const std::string port = "port" + std::to_string(host);
  const Fd network(::open(("/proc/" + std::to_string(holders_[0]) + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC));
  TUTTI_TRY(shell(host, "ip link delete eth0"));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "pipe");
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  const pid_t carrier = ::fork();
  if (carrier < 0) return system_error(errno, "fork");
  if (carrier == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string trouble = enter(host) ? "" : "cannot enter " + name(host);
    auto one = open_tap("eth0");
    if (trouble.empty() && !one.ok()) trouble = to_string(one.error());
    if (trouble.empty() && ::setns(network.get(), CLONE_NEWNET) != 0) trouble = "cannot enter the switch";
    auto other = open_tap(port);
    if (trouble.empty() && !other.ok()) trouble = to_string(other.error());
    const std::string answer = trouble.empty() ? "in" : trouble;
    if (::write(writing.get(), answer.data(), answer.size()) < 0) ::_exit(1);
    writing.reset();
    if (trouble.empty()) carry_frames(one->get(), other->get(), roughness, std::uint64_t(host));
    ::_exit(1);
  }
  carriers_.push_back(carrier);
  writing.reset();
  std::string answer(1000, 0);
  answer.resize(std::size_t(std::max<ssize_t>(0, ::read(reading.get(), answer.data(), answer.size()))));
  if (answer != "in") return cannot(answer);
  TUTTI_TRY(shell(-1, "ip link set " + port + " master switch up"));
  TUTTI_TRY(set_addresses(host));
  return set_filter(host);
}

std::string Hosts::second_address(int host) { return "10.78.0." + std::to_string(host + 1); }

Status Hosts::add_network() {
  TUTTI_TRY(shell(-1, "ip link add second type bridge mcast_snooping 0 && ip link set second up"));
  for (int host = 0; host < count(); ++host) {
    const std::string port = "second" + std::to_string(host);
    TUTTI_TRY(shell(-1, "ip link add " + port + " type veth peer name eth1 netns " +
                            std::to_string(holders_[std::size_t(host + 1)]) + " && ip link set " + port +
                            " master second up"));
    TUTTI_TRY(shell(host, "ip address add " + second_address(host) + "/24 dev eth1 && ip link set eth1 up"));
  }
  return {};
}

Status Hosts::unplug(int host) const {
  std::vector<std::string> command = entering(-1);
  command.insert(command.end(), {"ip", "link", "set", "port" + std::to_string(host), "down"});
  return run(command).status();
}

Status Hosts::plug_in(int host) const {
  std::vector<std::string> command = entering(-1);
  command.insert(command.end(), {"ip", "link", "set", "port" + std::to_string(host), "up"});
  return run(command).status();
}

Status Hosts::power_off(int host) {
  TUTTI_TRY(partition({host}));
  for (const Deadline deadline = Deadline::after(kPatience);;) {
    const std::vector<pid_t> alive = processes(host);
    if (alive.empty()) return {};
    for (const pid_t pid : alive) ::kill(pid, SIGKILL);
    if (deadline.expired()) return deadline.error("processes of " + name(host) + " survive SIGKILL:\n" + census());
    ::poll(nullptr, 0, 1);
  }
}

// Those that have ended and wait for their parents have no namespaces any more, and so do not count.
std::vector<pid_t> Hosts::processes(int host) const {
  const pid_t holder = holders_[std::size_t(host + 1)];
  const std::string network = namespace_of(holder, "net");
  std::vector<pid_t> found;
  if (network.empty()) return found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto pid = parse_int(entry.path().filename().string());
    if (pid && pid_t(*pid) != holder && namespace_of(pid_t(*pid), "net") == network) found.push_back(pid_t(*pid));
  }
  return found;
}

std::string Hosts::census() const {
  std::string names;
  for (int host = 0; host < count(); ++host) {
    for (const pid_t pid : processes(host)) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
      std::string command((std::istreambuf_iterator<char>(file)), {});
      for (char& c : command) c = c ? c : ' ';
      names += name(host) + ": " + std::to_string(pid) + " " + command + "\n";
    }
  }
  return names;
}

}  // namespace tutti::testing
