// With a period of 200 ms and 2.5 s of patience a pause of a second is nothing. When the other side has been silent for
// three periods the agent asks four times as often: with a fifth of all packets lost, some 30 round trips would have to
// fail one after the other.
//
// A process that was stopped or descheduled cannot know whether the others were silent meanwhile: time that passed
// between two turns of a thread, beyond what it meant to wait, does not count. The others do count it, and tell this
// process that it is out when it wakes up.
//
// The kernel of a host whose agent has died answers "port unreachable" to what is sent there. That is faster than
// silence, and says more: a process is dead, where silence may be a cut behind which it lives on. Anybody could forge
// that answer, so it only counts together with a second of silence.
#include "tutti/launch/membership/heartbeat.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tutti/base/thread.h"
#include "tutti/transport/address.h"
#include "tutti/transport/socket.h"

namespace tutti::launch::membership {
namespace {

constexpr auto kForgiven = std::chrono::milliseconds(500);  // that a turn may take longer than meant
constexpr auto kCertain = std::chrono::seconds(1);          // of silence, together with a refusal
constexpr int kSilentPeriods = 3;                           // until the other side counts as silent
constexpr int kQuickly = 4;                                 // times as often, once it is silent
constexpr int kBurst = 4096, kAgentBurst = 64;              // datagrams of one turn

std::uint64_t clock_value(Clock::time_point time) { return std::uint64_t(time.time_since_epoch().count()); }

Result<Fd> udp_socket(int family) {
  Fd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, "could not make a UDP socket for heartbeats");
  const int on = 1;  // to learn of refusals
  if (family == AF_INET6)
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
  else
    setsockopt(socket.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on);
  return socket;
}

HeartbeatTable::Socket bytes_of(transport::SocketAddress& address) {
  const auto* raw = reinterpret_cast<const std::byte*>(address.get());
  return {raw, raw + address.length};
}

bool says_refused(msghdr& message) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
    const bool error = (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_RECVERR) ||
                       (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_RECVERR);
    if (!error) continue;
    sock_extended_err what;
    std::memcpy(&what, CMSG_DATA(item), sizeof what);
    if (what.ee_errno == ECONNREFUSED) return true;
  }
  return false;
}

void ring(const Fd& fd) { (void)eventfd_write(fd.get(), 1); }

// Waits until the socket is readable, at most `time`. Returns how much longer than meant that took, beyond what is
// forgiven.
Duration wait_for_turn(int socket, int stop, Duration time, bool& stopped) {
  const auto begin = now();
  pollfd fds[] = {{socket, POLLIN, 0}, {stop, POLLIN, 0}};
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  (void)poll(fds, 2, int(std::max<std::int64_t>(1, limit)));
  stopped = fds[1].revents != 0;
  const Duration over = now() - begin - time;
  return over > kForgiven ? over : Duration(0);
}

}  // namespace

void Liveness::prove(std::uint64_t own_clock, Clock::time_point now) {
  if (own_clock == 0 || own_clock > clock_value(now)) return;
  const Clock::time_point then{Clock::duration(std::int64_t(own_clock))};
  proven_ = std::max(proven_, then);
  heard_ = std::max(heard_.value_or(then), then);
}

// ---- the coordinator's side ----

void HeartbeatTable::expect(std::uint64_t id, Time now) {
  peers_.insert_or_assign(id, Peer{.life = Liveness(now), .socket = {}});
}

void HeartbeatTable::forget(std::uint64_t id) { peers_.erase(id); }

void HeartbeatTable::slept(Duration time) {
  for (auto& [id, peer] : peers_) peer.life.slept(time);
}

Datagram HeartbeatTable::echo(std::uint64_t id, std::uint64_t clock, std::int32_t round, bool out, Time now) const {
  return {.kind = role_ == Role::kVotes ? Datagram::Kind::kVotes : Datagram::Kind::kEcho,
          .out = out || (partitioned_ && round >= 0),
          .round = round,
          .id = id,
          .own = clock_value(now),
          .other = clock,
          .vote = asked_};
}

std::optional<Datagram> HeartbeatTable::receive(const Datagram& ping, const Socket& from, Time now) {
  if (ping.kind != Datagram::Kind::kPing) return {};
  if (ping.vote > vote_round_) {
    vote_round_ = ping.vote;
    votes_.clear();
  }
  if (ping.vote >= 0 && ping.vote == vote_round_) votes_.insert(ping.id);
  const auto at = peers_.find(ping.id);
  if (at == peers_.end())  // lost, or not known yet: then it waits and is in no round
    return echo(ping.id, ping.own, ping.round, ping.round >= 0, now);
  Peer& peer = at->second;
  peer.life.prove(ping.other, now);
  peer.refused = false;
  if (ping.own >= peer.clock) {
    peer.clock = ping.own;
    peer.socket = from;
  }
  return echo(ping.id, peer.clock, ping.round, ping.round >= 0 && ping.round < round_, now);
}

void HeartbeatTable::refused(const Socket& by) {
  for (auto& [id, peer] : peers_)
    if (peer.socket == by) peer.refused = true;
}

std::vector<std::pair<HeartbeatTable::Socket, Datagram>> HeartbeatTable::questions(Time now) {
  std::vector<std::pair<Socket, Datagram>> all;
  for (auto& [id, peer] : peers_) {
    const bool silent = peer.life.silence(now) >= kSilentPeriods * times_.period;
    if (peer.socket.empty() || !silent || now - peer.asked < times_.period) continue;
    peer.asked = now;
    all.emplace_back(peer.socket, echo(id, peer.clock, round_, false, now));
  }
  return all;
}

std::vector<SilentAgent> HeartbeatTable::silent(Time now) const {
  std::vector<SilentAgent> all;
  for (const auto& [id, peer] : peers_) {
    const Duration silence = peer.life.silence(now);
    const bool certain = peer.refused && silence >= kCertain;
    if (silence >= times_.lost_after || certain) all.push_back({id, silence, certain});
  }
  return all;
}

std::optional<Clock::time_point> HeartbeatTable::heard(std::uint64_t id) const {
  const auto peer = peers_.find(id);
  return peer == peers_.end() ? std::nullopt : peer->second.life.heard();
}

std::set<std::uint64_t> HeartbeatTable::votes(std::int32_t round) const {
  return round == vote_round_ ? votes_ : std::set<std::uint64_t>();
}

Result<std::unique_ptr<HeartbeatCenter>> HeartbeatCenter::open(const std::string& host, std::uint16_t port,
                                                               const transport::Credentials& credentials,
                                                               HeartbeatTimes times, HeartbeatTable::Role role) {
  for (const std::uint16_t wanted : {port, std::uint16_t(0)}) {
    transport::SocketAddress address = TUTTI_TRY(transport::to_socket_address({.host = host, .port = wanted}));
    Fd socket = TUTTI_TRY(udp_socket(address.family()));
    if (bind(socket.get(), address.get(), address.length) != 0) {
      if (errno == EADDRINUSE && wanted != 0) continue;
      return system_error(errno, "could not bind " + host + " for heartbeats");
    }
    const std::string bound = to_string(transport::local_address(socket.get()));
    return as_result([&] {
      return std::unique_ptr<HeartbeatCenter>(
          new HeartbeatCenter(std::move(socket), bound, heartbeat_key(credentials), times, role));
    });
  }
  return Error{.code = Code::kInternal, .detail = "no port for heartbeats"};
}

HeartbeatCenter::HeartbeatCenter(Fd socket, std::string address, const crypto::Digest& key, HeartbeatTimes times,
                                 HeartbeatTable::Role role)
    : socket_(std::move(socket)),
      address_(std::move(address)),
      key_(key),
      period_(times.period),
      stop_(make_eventfd().or_throw()),
      table_(times, role),
      thread_(start_thread([this] { run(); }).or_throw()) {}

HeartbeatCenter::~HeartbeatCenter() {
  ring(stop_);
  thread_.join();
}

void HeartbeatCenter::expect(std::uint64_t id) {
  MutexLock lock(mutex_);
  table_.expect(id, now());
}

void HeartbeatCenter::forget(std::uint64_t id) {
  MutexLock lock(mutex_);
  table_.forget(id);
}

void HeartbeatCenter::set_round(std::int32_t round) {
  MutexLock lock(mutex_);
  table_.set_round(round);
}

void HeartbeatCenter::ask_votes(std::int32_t round) {
  MutexLock lock(mutex_);
  table_.ask_votes(round);
}

void HeartbeatCenter::set_partitioned(bool partitioned) {
  MutexLock lock(mutex_);
  table_.set_partitioned(partitioned);
}

std::vector<SilentAgent> HeartbeatCenter::silent() const {
  MutexLock lock(mutex_);
  return table_.silent(now());
}

std::optional<Clock::time_point> HeartbeatCenter::heard(std::uint64_t id) const {
  MutexLock lock(mutex_);
  return table_.heard(id);
}

std::set<std::uint64_t> HeartbeatCenter::votes(std::int32_t round) const {
  MutexLock lock(mutex_);
  return table_.votes(round);
}

void HeartbeatCenter::run() {
  for (bool stopped = false;;) {
    const Duration slept = wait_for_turn(socket_.get(), stop_.get(), period_, stopped);
    if (stopped) return;
    if (slept > Duration(0)) {
      MutexLock lock(mutex_);
      table_.slept(slept);
    }
    read_refusals();
    receive();
    ask_silent();
  }
}

void HeartbeatCenter::receive() {
  std::byte bytes[kDatagramBytes + 1];
  for (int burst = 0; burst < kBurst; ++burst) {
    transport::SocketAddress from;
    const ssize_t count = recvfrom(socket_.get(), bytes, sizeof bytes, 0, from.get(), &from.length);
    if (count < 0 && errno != EAGAIN && errno != EINTR) continue;  // a refusal, which read_refusals() has the rest of
    if (count < 0) return;
    const auto ping = parse_datagram(std::span(bytes, std::size_t(count)), key_);
    if (!ping) continue;
    const HeartbeatTable::Socket socket = bytes_of(from);
    const auto echo = [&] {
      MutexLock lock(mutex_);
      return table_.receive(*ping, socket, now());
    }();
    if (echo) send(*echo, socket);
  }
}

void HeartbeatCenter::ask_silent() {
  const auto questions = [&] {
    MutexLock lock(mutex_);
    return table_.questions(now());
  }();
  for (const auto& [socket, question] : questions) send(question, socket);
}

void HeartbeatCenter::send(const Datagram& datagram, const HeartbeatTable::Socket& to) {
  const auto bytes = encode(datagram, key_);
  (void)sendto(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(to.data()),
               socklen_t(to.size()));
}

void HeartbeatCenter::read_refusals() {
  for (;;) {
    transport::SocketAddress to;
    std::byte bytes[kDatagramBytes];
    std::byte control[512];
    iovec part{bytes, sizeof bytes};
    msghdr message{.msg_name = to.get(),
                   .msg_namelen = to.length,
                   .msg_iov = &part,
                   .msg_iovlen = 1,
                   .msg_control = control,
                   .msg_controllen = sizeof control};
    if (recvmsg(socket_.get(), &message, MSG_ERRQUEUE) < 0) return;
    if (!says_refused(message)) continue;
    to.length = message.msg_namelen;
    MutexLock lock(mutex_);
    table_.refused(bytes_of(to));
  }
}

// ---- an agent's side ----

void HeartbeatClient::set_round(std::int32_t round) {
  round_ = round;
  if (state_ == HeartbeatState::kOut) state_ = HeartbeatState::kWell;
}

void HeartbeatClient::receive(const Datagram& echo, Time now) {
  if (echo.kind == Datagram::Kind::kPing || echo.id != id_) return;
  if (echo.vote >= 0 && vote_ != echo.vote && voter_ && voter_(echo.vote)) vote_ = echo.vote;
  if (echo.kind != Datagram::Kind::kEcho) return;
  refused_.reset();
  clock_ = std::max(clock_, echo.own);
  life_.prove(echo.other, now);
  heard_ = true;
  if (echo.out && echo.round >= 0 && echo.round == round_) state_ = HeartbeatState::kOut;
}

void HeartbeatClient::refused(Time now) {
  if (!refused_) refused_ = now;
  judge(now);
}

std::optional<Datagram> HeartbeatClient::tick(Time now) {
  judge(now);
  if (now < next_) return {};
  const bool quickly = life_.silence(now) > kSilentPeriods * times_.period;
  next_ = now + times_.period / (quickly ? kQuickly : 1);
  return Datagram{.kind = Datagram::Kind::kPing,
                  .round = round_,
                  .id = id_,
                  .own = clock_value(now),
                  .other = clock_,
                  .vote = vote_};
}

void HeartbeatClient::judge(Time now) {
  const Duration silence = life_.silence(now);
  if (refused_ && silence >= kCertain) {
    state_ = HeartbeatState::kGone;
  } else if (silence >= times_.lost_after) {
    state_ = HeartbeatState::kSilent;
  }
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::open(const std::string& center, std::uint64_t id,
                                                   const transport::Credentials& credentials, HeartbeatTimes times,
                                                   Voter voter) {
  transport::SocketAddress address =
      TUTTI_TRY(transport::to_socket_address(TUTTI_TRY(transport::parse_address(center))));
  Fd socket = TUTTI_TRY(udp_socket(address.family()));
  if (connect(socket.get(), address.get(), address.length) != 0)
    return system_error(errno, "could not reach " + center + " with heartbeats");
  return as_result([&] {
    return std::unique_ptr<Heartbeat>(new Heartbeat(std::move(socket), center, heartbeat_key(credentials),
                                                    HeartbeatClient(id, times, std::move(voter), now())));
  });
}

Heartbeat::Heartbeat(Fd socket, std::string center, const crypto::Digest& key, HeartbeatClient client)
    : socket_(std::move(socket)),
      center_(std::move(center)),
      key_(key),
      stop_(make_eventfd().or_throw()),
      changed_(make_eventfd().or_throw()),
      client_(std::move(client)),
      thread_(start_thread([this] { run(); }).or_throw()) {}

Heartbeat::~Heartbeat() {
  ring(stop_);
  thread_.join();
}

void Heartbeat::set_round(std::int32_t round) {
  MutexLock lock(mutex_);
  const HeartbeatState before = client_.state();
  client_.set_round(round);
  if (client_.state() == before) return;
  eventfd_t ignored;
  (void)eventfd_read(changed_.get(), &ignored);
}

HeartbeatState Heartbeat::state() const {
  MutexLock lock(mutex_);
  return client_.state();
}

bool Heartbeat::lost() const {
  const HeartbeatState now = state();
  return now == HeartbeatState::kSilent || now == HeartbeatState::kGone;
}

bool Heartbeat::ever_heard() const {
  MutexLock lock(mutex_);
  return client_.ever_heard();
}

Duration Heartbeat::silence() const {
  MutexLock lock(mutex_);
  return client_.silence(now());
}

void Heartbeat::run() {
  for (bool stopped = false;;) {
    const Duration length = std::max(Duration(0), Duration(turn() - now()));
    const Duration slept = wait_for_turn(socket_.get(), stop_.get(), length, stopped);
    if (stopped) return;
    if (slept > Duration(0)) {
      MutexLock lock(mutex_);
      client_.slept(slept);
    }
  }
}

// Returns when the next turn is due.
Clock::time_point Heartbeat::turn() {
  MutexLock lock(mutex_);
  const HeartbeatState before = client_.state();
  receive();
  if (const auto ping = client_.tick(now())) {
    const auto bytes = encode(*ping, key_);
    if (::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == ECONNREFUSED)
      client_.refused(now());
  }
  if (client_.state() != before) ring(changed_);
  return client_.next_turn();
}

void Heartbeat::receive() {
  std::byte bytes[kDatagramBytes + 1];
  for (int burst = 0; burst < kAgentBurst; ++burst) {
    const ssize_t count = recv(socket_.get(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == ECONNREFUSED) {
      client_.refused(now());
      continue;
    }
    if (count < 0) return;
    if (const auto echo = parse_datagram(std::span(bytes, std::size_t(count)), key_)) client_.receive(*echo, now());
  }
}

}  // namespace tutti::launch::membership
