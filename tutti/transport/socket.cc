// Stream sockets. All are non-blocking; a blocking call here is a loop of "try, poll until the deadline".
//
// connect() is patient because the ranks of a job start in any order: *refused* means "not yet" and is tried again
// after a *pause* that grows from a millisecond to half a second, with jitter so that a thousand ranks do not knock in
// step. What will not heal by waiting (no such interface, no permission) ends it at once.
#include "tutti/transport/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/transport/address.h"

namespace tutti {
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
  // a connection that began under bbr stays paced. A system without cubic, or that lets nobody choose, keeps its own.
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

bool has_file(const Address& address) { return address.is_unix() && !is_abstract(address); }

// A socket file to which nobody listens any more: left by a program that was killed.
bool is_abandoned(const SocketAddress& address, const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode) || info.st_uid != ::geteuid()) return false;
  const auto probe = open_socket(AF_UNIX);
  return probe.ok() && ::connect(probe->get(), address.get(), address.length) != 0 && errno == ECONNREFUSED;
}

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
    return invalid_argument("cannot listen at " + where + ": this is no address of this machine",
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
    // The kernel may pick the target's own port as ours when nobody listens there: a socket connected to itself.
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

// Whoever sees an abstract name may knock as often as he likes, and must not fill our log.
void tell_of_stranger(const ucred& stranger, const Address& at) {
  static std::atomic<std::int64_t> quiet_until{0};
  const std::int64_t time = now().time_since_epoch().count();
  std::int64_t until = quiet_until.load();
  if (time < until || !quiet_until.compare_exchange_strong(until, time + kStrangersEvery.count())) return;
  log::warn("turned away pid " + std::to_string(stranger.pid) + " of user id " + std::to_string(stranger.uid) + " at " +
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
  if (!bound && errno == EADDRINUSE && has_file(address) && is_abandoned(target, address.path)) {
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
      ucred peer{};
      socklen_t size = sizeof peer;
      if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
          (peer.uid == ::geteuid() || peer.uid == 0))
        return fd;
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
                     .detail = "cannot take another connection at " + to_string(listener.address),
                     .hint = "raise the limit of open files (ulimit -n)",
                     .errno_value = errno};
      default:
        return system_error(errno, "cannot take a connection at " + to_string(listener.address));
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

}  // namespace tutti
