// With a period of 200 ms and 2.5 s of patience a pause of a second is nothing. When the other side has been silent for
// three periods the agent asks four times as often: with a fifth of all packets lost, some 30 round trips would have to
// fail one after the other.
//
// Whose process was stopped, or did not get the processor, has not listened, and must not call the others silent: time
// that passed between two turns of a thread, beyond what it meant to wait, does not count. The others do count it, and
// tell us that we are out when we wake up.
//
// The kernel of a host whose agent has died answers "port unreachable" to what we send there. That is faster than
// silence, and more: a process is dead, where silence may be a cut behind which it lives on. Anybody could forge the
// answer, so it only counts with a second of silence beside it.
#include "tutti/launch/membership/heartbeat.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <net/if.h>
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

namespace tutti {
namespace {

constexpr char kMagic[8] = {'t', 'u', 't', 't', 'i', 'P', '2', '\0'};
constexpr std::size_t kProofBytes = 16;
constexpr auto kForgiven = std::chrono::milliseconds(500);  // that a turn may take longer than meant
constexpr auto kCertain = std::chrono::seconds(1);          // of silence beside a refusal
constexpr int kQuickly = 4;                                 // times as often, once the other is silent

struct PulseWire {
  char magic[8];
  std::uint8_t kind, out;
  std::uint16_t zero;
  std::int32_t round;
  std::uint64_t id, own, other;
  std::int32_t voice;
  std::uint32_t zero2;
  std::byte proof[kProofBytes];
};
static_assert(sizeof(PulseWire) == pulse::kBytes);

std::uint64_t clock_value(Clock::time_point time) { return std::uint64_t(time.time_since_epoch().count()); }
int milliseconds_of(Duration time) {
  return int(std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(time).count()));
}

struct PulseAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Result<PulseAddress> socket_address(const Address& address) {
  PulseAddress out;
  const bool v6 = address.host.find(':') != std::string::npos;
  if (v6) {
    const auto scope = address.host.find('%');
    auto* in = reinterpret_cast<sockaddr_in6*>(&out.storage);
    *in = {.sin6_family = AF_INET6, .sin6_port = htons(address.port)};
    out.size = sizeof *in;
    if (inet_pton(AF_INET6, address.host.substr(0, scope).c_str(), &in->sin6_addr) == 1) {
      if (scope != std::string::npos) in->sin6_scope_id = if_nametoindex(address.host.c_str() + scope + 1);
      return out;
    }
  } else {
    auto* in = reinterpret_cast<sockaddr_in*>(&out.storage);
    *in = {.sin_family = AF_INET, .sin_port = htons(address.port)};
    out.size = sizeof *in;
    if (inet_pton(AF_INET, address.host.c_str(), &in->sin_addr) == 1) return out;
  }
  return Error{.code = Code::kInvalidArgument, .detail = "'" + address.host + "' is no numeric address"};
}

Result<Fd> udp_socket(const PulseAddress& like) {
  Fd socket(::socket(like.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, "could not make a UDP socket for heartbeats");
  const int on = 1;  // so that a refusal is told
  if (like.storage.ss_family == AF_INET6)
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
  else
    setsockopt(socket.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on);
  return socket;
}

void ring(const Fd& fd) { (void)eventfd_write(fd.get(), 1); }

// Waits for a turn; how much longer than meant it took to come back, beyond what is forgiven.
Duration wait_for_turn(int socket, int stop, Duration time, bool& stopped) {
  const auto begin = now();
  pollfd fds[] = {{socket, POLLIN, 0}, {stop, POLLIN, 0}};
  (void)poll(fds, 2, milliseconds_of(time));
  stopped = fds[1].revents != 0;
  const Duration over = now() - begin - time;
  return over > kForgiven ? over : Duration(0);
}

}  // namespace

namespace pulse {

crypto::Digest key_of(const Credentials& credentials) {
  return crypto::hkdf_sha256(credentials.secret.bytes(), crypto::sha256(credentials.job), "tutti heartbeats");
}

std::array<std::byte, kBytes> encode(const Datagram& datagram, const crypto::Digest& key) {
  PulseWire wire{.kind = std::uint8_t(datagram.kind),
                 .out = datagram.out,
                 .zero = 0,
                 .round = datagram.round,
                 .id = datagram.id,
                 .own = datagram.own,
                 .other = datagram.other,
                 .voice = datagram.voice,
                 .zero2 = 0};
  std::memcpy(wire.magic, kMagic, sizeof kMagic);
  const auto bytes = std::as_bytes(std::span(&wire, 1));
  const crypto::Digest proof = crypto::hmac_sha256(key, bytes.first(kBytes - kProofBytes));
  std::memcpy(wire.proof, proof.data(), kProofBytes);
  std::array<std::byte, kBytes> out;
  std::memcpy(out.data(), &wire, kBytes);
  return out;
}

std::optional<Datagram> decode(std::span<const std::byte> bytes, const crypto::Digest& key) {
  PulseWire wire;
  if (bytes.size() != kBytes) return {};
  std::memcpy(&wire, bytes.data(), kBytes);
  if (std::memcmp(wire.magic, kMagic, sizeof kMagic) != 0 || wire.kind < 1 || wire.kind > 3) return {};
  const crypto::Digest proof = crypto::hmac_sha256(key, bytes.first(kBytes - kProofBytes));
  if (!crypto::equal(std::span(proof).first(kProofBytes), bytes.last(kProofBytes))) return {};
  return Datagram{.kind = Datagram::Kind(wire.kind),
                  .out = wire.out != 0,
                  .round = wire.round,
                  .id = wire.id,
                  .own = wire.own,
                  .other = wire.other,
                  .voice = wire.voice};
}

void Life::prove(std::uint64_t own_clock, Clock::time_point now) {
  if (own_clock == 0 || own_clock > clock_value(now)) return;
  const Clock::time_point then{Clock::duration(std::int64_t(own_clock))};
  proven_ = std::max(proven_, then);
  heard_ = std::max(heard_.value_or(then), then);
}

}  // namespace pulse

Result<std::unique_ptr<HeartbeatCenter>> HeartbeatCenter::open(const std::string& host, std::uint16_t port,
                                                               const Credentials& credentials, HeartbeatTimes times,
                                                               Part part, HeartbeatTurns turns) {
  for (const std::uint16_t wanted : {port, std::uint16_t(0)}) {
    PulseAddress address = TUTTI_TRY(socket_address({.host = host, .port = wanted}));
    Fd socket = TUTTI_TRY(udp_socket(address));
    if (bind(socket.get(), address.get(), address.size) != 0) {
      if (errno == EADDRINUSE && wanted != 0) continue;
      return system_error(errno, "could not bind " + host + " for heartbeats");
    }
    const std::string bound = to_string(local_address(socket.get()));
    return as_result([&] {
      return std::unique_ptr<HeartbeatCenter>(
          new HeartbeatCenter(std::move(socket), bound, pulse::key_of(credentials), times, part, turns));
    });
  }
  return Error{.code = Code::kInternal, .detail = "no port for heartbeats"};
}

HeartbeatCenter::HeartbeatCenter(Fd socket, std::string address, const crypto::Digest& key, HeartbeatTimes times,
                                 Part part, HeartbeatTurns turns)
    : socket_(std::move(socket)),
      address_(std::move(address)),
      key_(key),
      times_(times),
      part_(part),
      stop_(make_eventfd().or_throw()) {
  if (turns == HeartbeatTurns::kOfThread) thread_ = start_thread([this] { run(); }).or_throw();
}

HeartbeatCenter::~HeartbeatCenter() {
  ring(stop_);
  if (thread_.joinable()) thread_.join();
}

void HeartbeatCenter::expect(std::uint64_t id) {
  MutexLock lock(mutex_);
  peers_.insert_or_assign(id, Peer{.life = pulse::Life(now()), .address = {}});
}

void HeartbeatCenter::forget(std::uint64_t id) {
  MutexLock lock(mutex_);
  peers_.erase(id);
}

std::vector<HeartbeatCenter::Silent> HeartbeatCenter::silent(Clock::time_point time) const {
  MutexLock lock(mutex_);
  std::vector<Silent> all;
  for (const auto& [id, peer] : peers_) {
    const Duration silence = peer.life.silence(time);
    const bool certain = peer.refused && silence >= kCertain;
    if (silence >= times_.lost_after || certain) all.push_back({id, silence, certain});
  }
  return all;
}

std::optional<Clock::time_point> HeartbeatCenter::heard(std::uint64_t id) const {
  MutexLock lock(mutex_);
  const auto peer = peers_.find(id);
  return peer == peers_.end() ? std::nullopt : peer->second.life.heard();
}

std::set<std::uint64_t> HeartbeatCenter::voices(std::int32_t round) const {
  MutexLock lock(mutex_);
  return round == voice_round_ ? voices_ : std::set<std::uint64_t>();
}

void HeartbeatCenter::run() {
  for (bool stopped = false;;) {
    const Duration slept = wait_for_turn(socket_.get(), stop_.get(), times_.period, stopped);
    if (stopped) return;
    if (slept > Duration(0)) {
      MutexLock lock(mutex_);
      for (auto& [id, peer] : peers_) peer.life.slept(slept);
    }
    turn(now());
  }
}

void HeartbeatCenter::turn(Clock::time_point time) {
  read_refusals();
  receive(time);
  ask_silent(time);
}

void HeartbeatCenter::receive(Clock::time_point time) {
  std::byte bytes[pulse::kBytes + 1];
  for (int burst = 0; burst < 4096; ++burst) {
    PulseAddress from;
    from.size = sizeof from.storage;
    const ssize_t count = recvfrom(socket_.get(), bytes, sizeof bytes, 0, from.get(), &from.size);
    if (count < 0 && errno != EAGAIN && errno != EINTR) continue;  // a refusal, which read_refusals() has the rest of
    if (count < 0) return;
    const auto datagram = pulse::decode(std::span(bytes, std::size_t(count)), key_);
    if (!datagram || datagram->kind != pulse::Datagram::Kind::kPing) continue;
    const auto* raw = reinterpret_cast<const std::byte*>(&from.storage);
    const std::span<const std::byte> to(raw, from.size);
    MutexLock lock(mutex_);
    if (datagram->voice > voice_round_) {
      voice_round_ = datagram->voice;
      voices_.clear();
    }
    if (datagram->voice >= 0 && datagram->voice == voice_round_) voices_.insert(datagram->id);
    const auto at = peers_.find(datagram->id);
    if (at == peers_.end()) {  // lost, or not known yet: that one waits and is in no round
      Peer stranger{.life = pulse::Life(time), .clock = datagram->own, .address = {}};
      send(datagram->id, stranger, to, datagram->round, datagram->round >= 0, time);
      continue;
    }
    Peer& peer = at->second;
    peer.life.prove(datagram->other, time);
    peer.refused = false;
    if (datagram->own >= peer.clock) {
      peer.clock = datagram->own;
      peer.address.assign(to.begin(), to.end());
    }
    send(datagram->id, peer, to, datagram->round, datagram->round >= 0 && datagram->round < round_, time);
  }
}

void HeartbeatCenter::send(std::uint64_t id, const Peer& peer, std::span<const std::byte> to, std::int32_t round,
                           bool out, Clock::time_point time) {
  const auto kind = part_ == Part::kBallotBox ? pulse::Datagram::Kind::kBallot : pulse::Datagram::Kind::kEcho;
  const auto bytes = pulse::encode({.kind = kind,
                                    .out = out || (adrift_ && round >= 0),
                                    .round = round,
                                    .id = id,
                                    .own = clock_value(time),
                                    .other = peer.clock,
                                    .voice = asked_},
                                   key_);
  (void)sendto(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(to.data()),
               socklen_t(to.size()));
}

// Of a silent one we ask by ourselves, so that its host has something to refuse.
void HeartbeatCenter::ask_silent(Clock::time_point time) {
  MutexLock lock(mutex_);
  for (auto& [id, peer] : peers_) {
    if (peer.address.empty() || peer.life.silence(time) < 3 * times_.period || time - peer.asked < times_.period)
      continue;
    peer.asked = time;
    send(id, peer, peer.address, round_, false, time);
  }
}

void HeartbeatCenter::read_refusals() {
  for (;;) {
    PulseAddress to;
    std::byte bytes[pulse::kBytes];
    std::byte control[512];
    iovec part{bytes, sizeof bytes};
    msghdr message{.msg_name = to.get(),
                   .msg_namelen = sizeof to.storage,
                   .msg_iov = &part,
                   .msg_iovlen = 1,
                   .msg_control = control,
                   .msg_controllen = sizeof control};
    if (recvmsg(socket_.get(), &message, MSG_ERRQUEUE) < 0) return;
    bool refused = false;
    for (cmsghdr* item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
      const bool error = (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_RECVERR) ||
                         (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_RECVERR);
      if (!error) continue;
      sock_extended_err what;
      std::memcpy(&what, CMSG_DATA(item), sizeof what);
      refused = what.ee_errno == ECONNREFUSED;
    }
    if (!refused) continue;
    const auto* raw = reinterpret_cast<const std::byte*>(&to.storage);
    MutexLock lock(mutex_);
    for (auto& [id, peer] : peers_) {
      if (peer.address.size() == message.msg_namelen && std::equal(peer.address.begin(), peer.address.end(), raw))
        peer.refused = true;
    }
  }
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::open(const std::string& center, std::uint64_t id,
                                                   const Credentials& credentials, HeartbeatTimes times, Voter voter,
                                                   HeartbeatTurns turns) {
  PulseAddress address = TUTTI_TRY(socket_address(TUTTI_TRY(parse_address(center))));
  Fd socket = TUTTI_TRY(udp_socket(address));
  if (connect(socket.get(), address.get(), address.size) != 0)
    return system_error(errno, "could not reach " + center + " with heartbeats");
  return as_result([&] {
    return std::unique_ptr<Heartbeat>(
        new Heartbeat(std::move(socket), center, id, pulse::key_of(credentials), times, std::move(voter), turns));
  });
}

Heartbeat::Heartbeat(Fd socket, std::string center, std::uint64_t id, const crypto::Digest& key, HeartbeatTimes times,
                     Voter voter, HeartbeatTurns turns)
    : socket_(std::move(socket)),
      center_(std::move(center)),
      id_(id),
      key_(key),
      times_(times),
      voter_(std::move(voter)),
      stop_(make_eventfd().or_throw()),
      news_(make_eventfd().or_throw()),
      life_(now()) {
  if (turns == HeartbeatTurns::kOfThread) thread_ = start_thread([this] { run(); }).or_throw();
}

Heartbeat::~Heartbeat() {
  ring(stop_);
  if (thread_.joinable()) thread_.join();
}

Duration Heartbeat::silence() const {
  MutexLock lock(mutex_);
  return life_.silence(now());
}

void Heartbeat::set_round(std::int32_t round) {
  round_ = round;
  if (state_ != State::kOut) return;
  eventfd_t ignored;
  (void)eventfd_read(news_.get(), &ignored);
  state_ = State::kWell;
}

void Heartbeat::become(State state) {
  if (state_.exchange(state) != state) ring(news_);
}

void Heartbeat::run() {
  for (bool stopped = false;;) {
    turn(now());
    const Duration slept =
        wait_for_turn(socket_.get(), stop_.get(), std::max(Duration(0), Duration(next_ - now())), stopped);
    if (stopped) return;
    if (slept > Duration(0)) {
      MutexLock lock(mutex_);
      life_.slept(slept);
    }
  }
}

void Heartbeat::turn(Clock::time_point time) {
  receive(time);
  const Duration silence = [&] {
    MutexLock lock(mutex_);
    return life_.silence(time);
  }();
  const bool quickly = silence > 3 * times_.period;
  if (time >= next_) {
    const auto bytes = pulse::encode({.kind = pulse::Datagram::Kind::kPing,
                                      .round = round_,
                                      .id = id_,
                                      .own = clock_value(time),
                                      .other = clock_,
                                      .voice = voice_},
                                     key_);
    if (::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == ECONNREFUSED && !refused_)
      refused_ = time;
    next_ = time + times_.period / (quickly ? kQuickly : 1);
  }
  if (refused_ && silence >= kCertain) {
    become(State::kGone);
  } else if (silence >= times_.lost_after) {
    become(State::kSilent);
  }
}

void Heartbeat::receive(Clock::time_point time) {
  std::byte bytes[pulse::kBytes + 1];
  for (int burst = 0; burst < 64; ++burst) {
    const ssize_t count = recv(socket_.get(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == ECONNREFUSED) {
      if (!refused_) refused_ = time;
      continue;
    }
    if (count < 0) return;
    const auto datagram = pulse::decode(std::span(bytes, std::size_t(count)), key_);
    if (!datagram || datagram->kind == pulse::Datagram::Kind::kPing || datagram->id != id_) continue;
    if (datagram->voice >= 0 && voice_ != datagram->voice && voter_ && voter_(datagram->voice))
      voice_ = datagram->voice;
    if (datagram->kind != pulse::Datagram::Kind::kEcho) continue;
    refused_.reset();
    clock_ = std::max(clock_, datagram->own);
    {
      MutexLock lock(mutex_);
      life_.prove(datagram->other, time);
    }
    ever_heard_ = true;
    if (datagram->out && datagram->round >= 0 && datagram->round == round_) become(State::kOut);
  }
}

}  // namespace tutti
