// Stream sockets. All are non-blocking; a blocking call here is a loop of "try, poll until the deadline".
//
// connect() is patient because the ranks of a job start in any order: *refused* means "not yet" and is tried again
// after a *pause* that grows from a millisecond to half a second, with jitter so that a thousand ranks do not knock in
// step. What will not heal by waiting (no such interface, no permission) ends it at once.
#include "tutti/transport/socket.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::transport {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(1), kLongestPause = std::chrono::milliseconds(500);
constexpr double kReportEvery = 5;                              // seconds between lines while a connection is awaited
constexpr Duration kStrangersEvery = std::chrono::seconds(10);  // between lines about other users who knock

Result<Fd> open_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd)
    return system_error(errno, "cannot open a socket",
                        errno == EMFILE ? "raise the limit of open files (ulimit -n)" : "");
  // Where the system's default is bbr, which paces what it sends even on loopback and inside a rack, cubic moves three
  // times as much. It must be chosen before the socket is connected (an accepted one takes it from the listener):
  // a connection that began under bbr stays paced. A system without cubic, or one that forbids the choice, keeps its
  // own.
  if (family != AF_UNIX) (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  return fd;
}

// Small messages leave at once; a machine that has vanished without a word is noticed after a minute and a half.
void set_tcp_options(int fd) {
  const auto set = [fd](int level, int option, int value) {
    (void)::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

// Processes of this user, and root, may talk to us over a Unix socket.
bool is_trusted(const ucred& process) { return process.uid == ::geteuid() || process.uid == 0; }

// An abstract name may have been taken by another user. kRefused unless a process of this user, or root, listens there.
Status check_listener(int fd, const Address& address) {
  const auto listener = peer_process(fd);
  if (!listener) return system_error(errno, "cannot find out which user listens at " + to_string(address));
  if (is_trusted(*listener)) return {};
  return Error{.code = Code::kRefused,
               .detail = "pid " + std::to_string(listener->pid) + " of user id " + std::to_string(listener->uid) +
                         " listens at " + to_string(address) + ", not a process of this user"};
}

bool has_file(const Address& address) { return address.is_unix() && !is_abstract(address); }

Error listen_error(int errno_value, const Address& address) {
  const std::string where = to_string(address);
  if (errno_value == EADDRINUSE) {
    const std::string holder = port_holder(address);
    return Error{.code = Code::kAddressInUse,
                 .detail = "cannot listen at " + where + ": " +
                           (holder.empty() ? std::string("another process holds it") : "it is held by " + holder),
                 .hint = address.is_unix() ? "another job of this name is running"
                                           : "end that process, or give another port (0: any that is free)"};
  }
  if (errno_value == EADDRNOTAVAIL)
    return invalid_argument("cannot listen at " + where + ": this is not an address of this machine",
                            "this machine has " + join(local_addresses(), ", "));
  return system_error(
      errno_value, "cannot listen at " + where,
      errno_value == EACCES && !address.is_unix() ? "ports below 1024 need privileges; choose a higher one" : "");
}

// One attempt at one numeric address. The Error's errno says whether a second attempt makes sense.
Result<Fd> connect_once(const Address& address, Deadline deadline) {
  const SocketAddress target = TUTTI_TRY(to_socket_address(address));
  Fd fd = TUTTI_TRY(open_socket(target.family()));
  const auto failure = [&](int errno_value) {
    return Error{
        .code = Code::kUnreachable, .detail = "cannot connect to " + to_string(address), .errno_value = errno_value};
  };
  if (::connect(fd.get(), target.get(), target.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return failure(errno);
    if (!TUTTI_TRY(wait_writable(fd.get(), deadline))) return failure(ETIMEDOUT);
    int result = 0;
    socklen_t size = sizeof result;
    (void)::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &result, &size);
    if (result != 0) return failure(result);
  }
  if (is_abstract(address)) TUTTI_TRY(check_listener(fd.get(), address));
  if (!address.is_unix()) {
    set_tcp_options(fd.get());
    // The kernel may pick the target's own port as ours when no process listens there: a socket connected to itself.
    if (local_address(fd.get()) == peer_address(fd.get())) return failure(ECONNREFUSED);
  }
  return fd;
}

bool may_heal(const Error& error) {
  if (error.code != Code::kUnreachable) return false;
  switch (error.errno_value) {
    case 0:  // a name that does not resolve yet
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENOENT:  // the Unix socket does not exist yet
    case EAGAIN:  // its backlog is full
      return true;
    default:
      return false;
  }
}

// One attempt at every address of the host; each gets its share of what is left, so that a dead first one does not
// starve the second.
Result<Fd> connect_any(const Address& address, Deadline deadline) {
  const auto candidates = TUTTI_TRY(resolve(address));
  Result<Fd> last = Error{.code = Code::kUnreachable, .detail = "host \"" + address.host + "\" has no address"};
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    last = connect_once(candidates[i], deadline.at_most(deadline.remaining() / long(candidates.size() - i)));
    if (last.ok() || deadline.expired()) break;
  }
  return last;
}

// A process that sees an abstract name may connect as often as it likes, and must not fill our log.
void tell_of_stranger(const ucred& stranger, const Address& at) {
  static std::atomic<std::int64_t> quiet_until{0};
  const std::int64_t time = now().time_since_epoch().count();
  std::int64_t until = quiet_until.load();
  if (time < until || !quiet_until.compare_exchange_strong(until, time + kStrangersEvery.count())) return;
  log::warn("rejected pid " + std::to_string(stranger.pid) + " of user id " + std::to_string(stranger.uid) + " at " +
            to_string(at));
}

const char* connect_hint(const Error& error, const Address& address) {
  if (!error.hint.empty()) return error.hint.c_str();
  switch (error.errno_value) {
    case ECONNREFUSED:
      return address.is_unix() ? "the program that listened there has ended"
                               : "the machine answers, but no program listens at this port: is the first rank running, "
                                 "and is the port right?";
    case ENOENT:
      return "the program that should listen there has not started";
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "no answer: check the address, the route and firewalls between the machines";
    default:
      return "";
  }
}

}  // namespace

Result<Listener> listen(const Address& address, int backlog) {
  if (!address.is_unix() && !to_socket_address(address).ok())
    return invalid_argument("cannot listen at \"" + address.host + "\": a listener needs a numeric address",
                            "this machine has " + join(local_addresses(), ", "));
  const SocketAddress target = TUTTI_TRY(to_socket_address(address));
  Fd fd = TUTTI_TRY(open_socket(target.family()));
  const int on = 1;
  if (has_file(address)) {
    (void)::fchmod(fd.get(), 0600);  // before bind: the file is born private
  } else if (!address.is_unix()) {
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (target.family() == AF_INET6) (void)::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  bool bound = ::bind(fd.get(), target.get(), target.length) == 0;
  if (!bound && errno == EADDRINUSE && has_file(address) && is_abandoned_socket(address.path)) {
    (void)::unlink(address.path.c_str());
    bound = ::bind(fd.get(), target.get(), target.length) == 0;
  }
  if (!bound) return listen_error(errno, address);
  if (::listen(fd.get(), backlog) != 0) return listen_error(errno, address);
  Listener listener{std::move(fd), address};
  if (!address.is_unix()) listener.address = local_address(listener.fd.get());
  return listener;
}

Result<Fd> connect(const Address& address, Deadline deadline, bool retry) {
  std::optional<std::minstd_rand> random;  // made when it is needed: asking for a seed costs more than connecting
  std::uniform_real_distribution<double> jitter(0.5, 1.0);
  Duration pause = kFirstPause;
  double next_report = kReportEvery;
  while (true) {
    auto fd = connect_any(address, deadline);
    if (fd.ok()) return fd;
    Error error = fd.error();
    if (!retry || !may_heal(error) || deadline.expired()) {
      if (error.code != Code::kUnreachable) return error;
      if (error.hint.empty()) error.hint = connect_hint(error, address);
      error.waited = deadline.waited();
      error.limit = deadline.limit();
      return error;
    }
    if (deadline.waited() >= next_report) {
      next_report += kReportEvery;
      log::info("still trying to connect to " + to_string(address) + " after " + seconds_text(deadline.waited()) +
                " of " + seconds_text(deadline.limit()) +
                (error.errno_value ? std::string(": ") + std::strerror(error.errno_value) : ": " + error.detail));
    }
    if (!random) random.emplace(std::random_device{}());
    const Duration nap =
        std::min(Duration(std::int64_t(double(pause.count()) * jitter(*random))), deadline.remaining());
    // There is no event for "somebody listens there now", so this one wait is a pause.
    const timespec sleep{nap.count() / 1000000000, nap.count() % 1000000000};
    (void)::nanosleep(&sleep, nullptr);
    pause = std::min(pause * 2, kLongestPause);
  }
}

Result<Fd> accept(const Listener& listener) {
  while (true) {
    Fd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      if (!listener.address.is_unix()) {
        set_tcp_options(fd.get());
        return fd;
      }
      const ucred peer = peer_process(fd.get()).value_or(ucred{.pid = 0, .uid = ~uid_t(0), .gid = ~gid_t(0)});
      if (is_trusted(peer)) return fd;
      tell_of_stranger(peer, listener.address);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return Fd();
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
        continue;
      case EMFILE:
      case ENFILE:
        return Error{.code = Code::kLimit,
                     .detail = "cannot accept another connection at " + to_string(listener.address),
                     .hint = "raise the limit of open files (ulimit -n)",
                     .errno_value = errno};
      default:
        return system_error(errno, "cannot accept a connection at " + to_string(listener.address));
    }
  }
}

Address local_address(int fd) {
  SocketAddress address;
  if (::getsockname(fd, address.get(), &address.length) != 0) return {};
  return from_socket_address(address);
}

Address peer_address(int fd) {
  SocketAddress address;
  if (::getpeername(fd, address.get(), &address.length) != 0) return {};
  return from_socket_address(address);
}

std::optional<ucred> peer_process(int fd) {
  ucred process{};
  socklen_t size = sizeof process;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size) != 0) return std::nullopt;
  return process;
}

bool is_abandoned_socket(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode) || info.st_uid != ::geteuid()) return false;
  const auto address = to_socket_address(Address{.path = path});
  const auto probe = open_socket(AF_UNIX);
  return address.ok() && probe.ok() && ::connect(probe->get(), address->get(), address->length) != 0 &&
         errno == ECONNREFUSED;
}

// ---- the process at a port ----

namespace {

struct ListeningSocket {
  std::string inode;
  uid_t user;
};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// A line: "0: 0100007F:7350 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4711 ..."
std::optional<ListeningSocket> find_listener(const char* table, std::uint16_t port) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    if (!(fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode))
      continue;
    const auto colon = local.rfind(':');
    if (state != "0A" || colon == local.npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port)
      return ListeningSocket{inode, uid_t(parse_int(user).value_or(-1))};
  }
  return std::nullopt;
}

std::string command_line(const std::string& process) {
  std::ifstream in("/proc/" + process + "/cmdline");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');  // '\0' between, '\n' inside
  text = trim(text);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return sanitize_line(text);  // anybody's process
}

bool has_socket(const std::string& process, const std::string& link) {
  const std::string path = "/proc/" + process + "/fd";
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (!folder) return false;
  while (const dirent* entry = ::readdir(folder.get())) {
    char target[64];
    const ssize_t size = ::readlink((path + "/" + entry->d_name).c_str(), target, sizeof target);
    if (size > 0 && std::string_view(target, std::size_t(size)) == link) return true;
  }
  return false;
}

}  // namespace

// /proc/net/tcp lists each listening socket with its port, the owner's user id and an inode; /proc/PID/fd holds links
// "socket:[INODE]". The link can be read for processes of the same user (all, for root); for the others the user's name
// is what remains.
std::string port_holder(const Address& address) {
  if (address.is_unix()) return {};
  auto socket = find_listener("/proc/net/tcp", address.port);
  if (!socket) socket = find_listener("/proc/net/tcp6", address.port);
  if (!socket) return {};
  const std::unique_ptr<DIR, CloseFolder> proc(::opendir("/proc"));
  const std::string link = "socket:[" + socket->inode + "]";
  while (const dirent* entry = proc ? ::readdir(proc.get()) : nullptr) {
    const std::string process = entry->d_name;
    if (parse_int(process) && has_socket(process, link)) return "pid " + process + " (" + command_line(process) + ")";
  }
  const passwd* user = ::getpwuid(socket->user);
  return user ? std::string("a process of user ") + user->pw_name
              : "a process of user id " + std::to_string(socket->user);
}

}  // namespace tutti::transport
