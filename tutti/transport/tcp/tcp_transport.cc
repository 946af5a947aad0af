// How a full mesh connects. Of two ranks the higher one dials and the lower one answers, so no ranks wait in a circle:
// rank 0 only answers, and a rank that all lower ranks have answered has dialled all it has to. Dialling blocks in the
// handshake, so a few threads dial while the caller's thread answers; all of them are joined before connect() returns.
//
// Ranks do not call connect() at the same moment, nor for the same channel: a peer may be one group ahead. Its
// connection passes the handshake like any other, and is kept under its channel until it is wanted.
//
// Strangers may connect in crowds and say nothing. There is room for some of them beside all ranks; when it is full, or
// this process may have no more files, the connection with the oldest handshake gives way, as in the store. The next
// connect() may come in an hour: until then sweep() accepts connections, of a rank that is ahead or a stranger, and has
// strangers leave soon.
#include "tutti/transport/tcp/tcp_transport.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/transport/striped_link.h"
#include "tutti/transport/tcp/tcp_link.h"

namespace tutti::transport {
namespace {

constexpr int kDialers = 8;
constexpr int kTries = 3;                    // of a peer that lets go during the handshake
constexpr std::size_t kMostStrangers = 512;  // as in the store; beside a connection of each rank
constexpr auto kCrowdPatience = std::chrono::milliseconds(500);
constexpr auto kHandshakeLimit = std::chrono::seconds(30);
constexpr auto kIdleLimit = std::chrono::seconds(2);        // of a handshake that goes on when connect() has ended
constexpr auto kIdleLook = std::chrono::milliseconds(400);  // how often it is looked at then
constexpr auto kTransportLook =
    std::chrono::seconds(1);  // how often limits of arrivals and other dialers' failures are looked at

constexpr double kFirstLine = 3, kLineEvery = 10;  // seconds: when a connect() that waits says for whom

// That this process may have.
std::size_t open_files() {
  rlimit files{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  return std::size_t(files.rlim_cur);
}

Error about(Error error, int rank) {
  error.operation = "connecting to rank " + std::to_string(rank);
  return error;
}

// A rank tells an address of its own machine, which from here may lead nowhere, or to this machine itself.
std::string contact_hint(const Error& error, const Address& address) {
  const std::string choose = "--iface or TUTTI_IFACE names a network that all machines share";
  if (is_loopback(address)) return error.hint;
  if (error.errno_value != ECONNREFUSED)
    return "no route from here to the address of that rank: check firewalls; if the machines have several networks, " +
           choose + "; `tutti doctor` tries the pairs";
  if (is_local_address(address.host))
    return "this machine has that address itself: if the rank runs on another one, both have it, as those of container "
           "bridges (docker0); " +
           choose;
  return "the machine answers, but that rank no longer listens there: read its log; if another machine has "
         "that address, " +
         choose;
}

}  // namespace

struct TcpTransport::Dialers {
  std::vector<std::thread> threads;
  ~Dialers() {
    for (std::thread& thread : threads) thread.join();
  }
};

struct TcpTransport::ConnectCall {
  std::span<const std::string> contacts;
  std::span<const int> global_ranks;
  int my_rank;
  std::uint64_t channel;
  Deadline deadline;
  std::vector<Fd> answered;  // by group rank: those that dialled us
  Fd bell;                   // a dialer has ended

  Mutex mutex;
  std::vector<Fd> dialled TUTTI_GUARDED_BY(mutex);   // by group rank
  std::vector<int> to_dial TUTTI_GUARDED_BY(mutex);  // not begun yet
  int dialers TUTTI_GUARDED_BY(mutex) = 0;           // threads that have not ended
  std::set<int> open TUTTI_GUARDED_BY(mutex);        // descriptors in a handshake
  Status failure TUTTI_GUARDED_BY(mutex);            // the first

  bool wants(int rank) const { return rank != my_rank && !contacts[rank].empty(); }

  std::vector<int> missing_callers() const {
    std::vector<int> ranks;
    for (int rank = my_rank + 1; rank < int(contacts.size()); ++rank) {
      if (wants(rank) && !answered[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  std::string waiting_for(const std::string& contact) {
    std::vector<std::string> awaited;
    if (const auto ranks = missing_callers(); !ranks.empty())
      awaited.push_back(ranks_words(ranks) + " to connect to " + contact);
    MutexLock lock(mutex);
    for (int rank = 0; rank < my_rank && awaited.size() < 3; ++rank)
      if (wants(rank) && !dialled[rank]) awaited.push_back("rank " + std::to_string(rank) + " at " + contacts[rank]);
    return join(awaited, ", ");
  }

  // The group rank of a caller that this call waits for; -1: it waits for another.
  int wanted(const Hello& hello) const {
    for (int rank = my_rank + 1; hello.channel == channel && rank < int(contacts.size()); ++rank)
      if (global_ranks[rank] == hello.rank && wants(rank)) return rank;
    return -1;
  }

  // Ends the other dialers too: their sockets fall silent.
  void fail(Status status) {
    MutexLock lock(mutex);
    if (failure.ok()) failure = std::move(status);
    to_dial.clear();
    for (const int fd : open) (void)::shutdown(fd, SHUT_RDWR);
  }
  bool failed() {
    MutexLock lock(mutex);
    return !failure.ok();
  }
};

TcpTransport::TcpTransport(Listener listener, Credentials credentials, int global_rank, Fd sweep_timer, Fd watch)
    : listener_(std::move(listener)),
      credentials_(std::move(credentials)),
      global_rank_(global_rank),
      sweep_timer_(std::move(sweep_timer)),
      watch_(std::move(watch)) {}

Result<std::unique_ptr<TcpTransport>> TcpTransport::open(const std::string& bind_host, Credentials credentials,
                                                         int global_rank) {
  Listener listener = TUTTI_TRY(listen(Address{.host = bind_host, .port = 0}));
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer) return system_error(errno, "cannot make a timer");
  Fd watch(::epoll_create1(EPOLL_CLOEXEC));
  if (!watch) return system_error(errno, "cannot create an epoll descriptor");
  for (const int fd : {timer.get(), listener.fd.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {}};
    if (::epoll_ctl(watch.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return system_error(errno, "cannot watch a descriptor");
  }
  return std::unique_ptr<TcpTransport>(
      new TcpTransport(std::move(listener), std::move(credentials), global_rank, std::move(timer), std::move(watch)));
}

Result<std::vector<std::unique_ptr<Link>>> TcpTransport::connect(std::span<const std::string> contacts,
                                                                 std::span<const int> global_ranks, int my_rank,
                                                                 std::uint64_t channel, Deadline deadline) {
  MutexLock one(connecting_);
  if (streams_ == 1) return connect_once(contacts, global_ranks, my_rank, channel * kMostStreams, deadline);
  std::vector<std::vector<std::unique_ptr<Link>>> streams(contacts.size());  // by rank
  for (int stream = 0; stream < streams_; ++stream) {
    auto links = TUTTI_TRY(
        connect_once(contacts, global_ranks, my_rank, channel * kMostStreams + std::uint64_t(stream), deadline));
    for (std::size_t rank = 0; rank < links.size(); ++rank)
      if (links[rank]) streams[rank].push_back(std::move(links[rank]));
  }
  std::vector<std::unique_ptr<Link>> links(contacts.size());
  for (std::size_t rank = 0; rank < links.size(); ++rank)
    if (!streams[rank].empty()) links[rank] = make_striped_link(std::move(streams[rank]));
  return links;
}

// One connection for each pair.
Result<std::vector<std::unique_ptr<Link>>> TcpTransport::connect_once(std::span<const std::string> contacts,
                                                                      std::span<const int> global_ranks, int my_rank,
                                                                      std::uint64_t channel, Deadline deadline) {
  const int size = int(contacts.size());
  Fd bell = TUTTI_TRY(make_eventfd());
  ConnectCall call{.contacts = contacts,
                   .global_ranks = global_ranks,
                   .my_rank = my_rank,
                   .channel = channel,
                   .deadline = deadline,
                   .bell = std::move(bell)};
  call.answered.resize(size);
  {
    MutexLock lock(mutex_);
    is_connecting_ = true;
    prepare_sweep();
    for (int rank = my_rank + 1; rank < size; ++rank)
      if (auto early = early_.extract({channel, global_ranks[rank]})) call.answered[rank] = std::move(early.mapped());
  }
  {
    MutexLock lock(call.mutex);
    call.dialled.resize(size);
    for (int rank = my_rank - 1; rank >= 0; --rank)
      if (call.wants(rank)) call.to_dial.push_back(rank);
    call.dialers = std::min(kDialers, int(call.to_dial.size()));
  }

  Status status;
  {
    Dialers dialers;
    status = start_dialers(call, dialers.threads);
    if (status.ok()) status = receive(call);
    if (!status.ok()) call.fail(status);
  }
  end_connect();
  if (!status.ok()) return status;

  std::vector<std::unique_ptr<Link>> links(size);
  MutexLock lock(call.mutex);
  for (int rank = 0; rank < size; ++rank) {
    Fd& socket = rank < my_rank ? call.dialled[rank] : call.answered[rank];
    if (socket) links[rank] = make_tcp_link(std::move(socket), contacts[rank], peer_timeout_);
  }
  return links;
}

// Fewer than wanted are enough: one of them dials whom no other has dialled.
Status TcpTransport::start_dialers(ConnectCall& call, std::vector<std::thread>& dialers) {
  MutexLock lock(call.mutex);
  for (const int wanted = call.dialers; int(dialers.size()) < wanted;) {
    auto dialer = start_thread([this, &call] { dial_all(call); });
    if (dialer.ok()) {
      dialers.push_back(*std::move(dialer));
      continue;
    }
    call.dialers = int(dialers.size());
    return dialers.empty() ? dialer.status() : Status();
  }
  return {};
}

// One of the threads that dial.
void TcpTransport::dial_all(ConnectCall& call) {
  for (;;) {
    int rank;
    {
      MutexLock lock(call.mutex);
      if (call.to_dial.empty()) {
        --call.dialers;
        (void)::eventfd_write(call.bell.get(), 1);
        return;
      }
      rank = call.to_dial.back();
      call.to_dial.pop_back();
    }
    auto socket = dial(call, rank);
    if (!socket.ok()) {
      call.fail(about(socket.error(), rank));
    } else {
      MutexLock lock(call.mutex);
      call.dialled[rank] = *std::move(socket);
    }
  }
}

Result<Fd> TcpTransport::dial(ConnectCall& call, int rank) {
  const Address address = TUTTI_TRY(parse_address(call.contacts[rank]));
  for (int tries = 1;; ++tries) {
    auto connected = transport::connect(address, call.deadline.at_most(kTransportLook));
    if (!connected.ok()) {
      Error error = connected.error();
      error.waited = call.deadline.waited(), error.limit = call.deadline.limit();
      // A contact is published by a process that listens: if none does, that process has ended. A silent network may
      // heal.
      const bool may_heal = error.code == Code::kUnreachable && error.errno_value != ECONNREFUSED;
      if (!may_heal || call.deadline.expired() || call.failed()) {
        error.hint = contact_hint(error, address);
        return error;
      }
      --tries;
      continue;
    }
    Fd socket = *std::move(connected);
    {
      MutexLock lock(call.mutex);
      if (!call.failure.ok()) return call.failure;
      call.open.insert(socket.get());
    }
    const Status welcome =
        handshake_as_client(socket.get(), credentials_,
                            {.role = Role::kData, .rank = global_rank_, .channel = call.channel}, call.deadline);
    {
      MutexLock lock(call.mutex);
      call.open.erase(socket.get());
    }
    if (welcome.ok()) return socket;
    if (welcome.error().code != Code::kPeerLost || tries == kTries || call.failed()) return welcome;
  }
}

// The caller's thread: answers until every link stands.
Status TcpTransport::receive(ConnectCall& call) {
  for (double next_line = kFirstLine;;) {
    const std::vector<int> missing = call.missing_callers();
    {
      MutexLock lock(call.mutex);
      if (!call.failure.ok()) return call.failure;
      if (missing.empty() && call.dialers == 0) return {};
    }
    if (call.deadline.waited() >= next_line) {
      log::info("waiting for " + call.waiting_for(contact()) + " after " + seconds_text(call.deadline.waited()) +
                " of " + seconds_text(call.deadline.limit()) + ": do firewalls let these addresses through?");
      next_line += kLineEvery;
    }
    if (call.deadline.expired()) {
      if (!missing.empty()) {
        Error error = call.deadline.error(ranks_words(missing) + " did not connect to " + contact(),
                                          "read the logs of those ranks; can they reach this address? --iface or "
                                          "TUTTI_IFACE chooses another network");
        error.operation = "connecting";
        return error;
      }
      // Only dialling is left: its own errors, which say more, come with the same deadline.
    }
    std::vector<pollfd> polls{{.fd = call.bell.get(), .events = POLLIN, .revents = 0}};
    Duration pause = kTransportLook;
    {
      MutexLock lock(mutex_);
      if (crowded_)
        pause = kCrowdPatience;
      else
        polls.push_back({.fd = listener_.fd.get(), .events = POLLIN, .revents = 0});
      for (const HalfOpen& half_open : half_open_)
        polls.push_back({.fd = half_open.socket.get(), .events = POLLIN, .revents = 0});
    }
    const Deadline look = call.deadline.expired() ? Deadline::after(pause) : call.deadline.at_most(pause);
    if (::poll(polls.data(), polls.size(), look.poll_timeout_ms()) < 0 && errno != EINTR)
      return system_error(errno, "poll failed");
    eventfd_t rings;
    (void)::eventfd_read(call.bell.get(), &rings);
    MutexLock lock(mutex_);
    advance_all(&call);
    if (const Status taken = accept_all(call.contacts.size()); !taken.ok())
      return taken.error().code == Code::kLimit ? out_of_files(taken.error(), call) : taken;
  }
}

// kLimit: this process may have no more files, and there is no stranger to close.
Status TcpTransport::accept_all(std::size_t expected) {
  const std::size_t most = std::min(kMostStrangers, open_files() / 4) + expected;
  crowded_ = false;
  while (make_room(most)) {
    auto socket = accept(listener_);
    if (socket.ok() && !*socket) return {};
    if (socket.ok()) {
      half_open_.push_back({*std::move(socket), std::make_unique<ServerHandshake>(credentials_, Role::kData),
                            Deadline::after(kHandshakeLimit), now()});
      continue;
    }
    if (socket.error().code != Code::kLimit || half_open_.empty()) return socket.status();
    if (!make_room(half_open_.size())) break;
  }
  crowded_ = true;
  return {};
}

// Whether there are fewer arrivals than `most`, by now: the oldest gives way if it has had its time.
bool TcpTransport::make_room(std::size_t most) {
  if (half_open_.size() < most) return true;
  if (now() - half_open_.front().since < kCrowdPatience) return false;
  log::debug("dropped a connection from " + to_string(peer_address(half_open_.front().socket.get())) + " to " +
             contact() + ": its handshake took too long while others waited");
  half_open_.erase(half_open_.begin());
  return true;
}

Error TcpTransport::out_of_files(Error error, const ConnectCall& call) const {
  error.operation = "connecting";
  error.detail += ", and " + ranks_words(call.missing_callers()) + " did not connect yet: this process may have " +
                  std::to_string(open_files()) + " open files";
  error.hint = "raise ulimit -n: every other rank takes one for each of " + std::to_string(streams_) +
               " connections (TUTTI_STREAMS)";
  return error;
}

// Without a call no peer is wanted now, and a handshake that is not done yet has little time left.
void TcpTransport::advance_all(ConnectCall* call) {
  std::vector<HalfOpen> unfinished;
  for (HalfOpen& half_open : half_open_) {
    auto finished = half_open.handshake->advance(half_open.socket.get());
    const Duration time = now() - half_open.since;
    if (!finished.ok() || (!*finished && (half_open.deadline.expired() || (!call && time >= kIdleLimit)))) {
      const std::string why = finished.ok() ? "it has not identified itself within " + seconds_text(to_seconds(time))
                                            : to_string(finished.error());
      const std::string line = "dropped a connection from " + to_string(peer_address(half_open.socket.get())) + " to " +
                               contact() + ": " + why;
      if (!finished.ok() && finished.error().code == Code::kPeerLost)  // it closed: a probe of ports
        log::debug(line);
      else
        dropped_.warn(line);
    } else if (!*finished) {
      unfinished.push_back(std::move(half_open));
    } else {
      const Hello& hello = half_open.handshake->hello();
      const int rank = call ? call->wanted(hello) : -1;
      (rank >= 0 ? call->answered[rank] : early_[{hello.channel, hello.rank}]) = std::move(half_open.socket);
    }
  }
  half_open_ = std::move(unfinished);
}

void TcpTransport::end_connect() {
  MutexLock lock(mutex_);
  is_connecting_ = false;
  prepare_sweep();
}

void TcpTransport::sweep() {
  MutexLock lock(mutex_);
  std::uint64_t times = 0;
  (void)!::read(sweep_timer_.get(), &times, sizeof times);
  if (is_connecting_) return;  // its end prepares the next one
  if (!accept_all(0).ok()) crowded_ = true;
  advance_all(nullptr);
  prepare_sweep();
}

// During a connect() there is nothing to sweep. Between two calls the listener is watched, and the timer runs while
// there is anybody to look after. It is sooner than the limit: a rank that is ahead is answered in two turns of its
// handshake.
void TcpTransport::prepare_sweep() {
  epoll_event event{.events = is_connecting_ || crowded_ ? 0U : std::uint32_t(EPOLLIN), .data = {}};
  (void)::epoll_ctl(watch_.get(), EPOLL_CTL_MOD, listener_.fd.get(), &event);
  itimerspec time{};
  if (!is_connecting_ && (crowded_ || !half_open_.empty()))
    time.it_value.tv_nsec = std::chrono::nanoseconds(kIdleLook).count();
  (void)::timerfd_settime(sweep_timer_.get(), 0, &time, nullptr);
}

}  // namespace tutti::transport
