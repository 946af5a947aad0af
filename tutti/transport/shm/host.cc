// The introduction of two ranks: after the handshake each sends {arena, bell} with SCM_RIGHTS, and how much the arena
// reserves: a place beyond what a peer has mapped would be its SIGSEGV. The bell's line lies at the start of its
// owner's arena.
#include "tutti/transport/shm/host.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "tutti/base/text.h"
#include "tutti/transport/address.h"

namespace tutti::transport {
namespace {

constexpr std::byte kGoodbye{'G'}, kFlight{'F'};
constexpr std::size_t kMostHalfOpen = 256;
constexpr auto kHostHandshakeLimit = std::chrono::seconds(30);
constexpr auto kHostLook = std::chrono::seconds(1);

struct HostGreeting {
  std::uint64_t reserved = 0;  // bytes of address space of the sender's arena
};

Result<std::shared_ptr<Arena>> make_arena(std::size_t heap_limit) {
  auto arena = std::make_shared<Arena>(TUTTI_TRY(Arena::create(heap_limit)));
  (void)TUTTI_TRY(arena->grow(4096));  // the bell's line
  auto* const line = new (arena->base()) BellLine;
  line->registered.store(register_for_fences());
  return arena;
}

Result<std::shared_ptr<Fd>> make_bell() { return std::make_shared<Fd>(TUTTI_TRY(make_eventfd())); }

}  // namespace

Result<std::unique_ptr<Host>> Host::open(const Credentials& credentials, int global_rank) {
  auto host = std::unique_ptr<Host>(new Host);
  host->credentials_ = std::make_unique<Credentials>(credentials);
  host->global_rank_ = global_rank;
  host->listener_ = TUTTI_TRY(listen(new_abstract_address()));
  host->contact_ = host->listener_.address.path;
  return host;
}

Status Host::join(const std::vector<std::string>& contacts, const std::vector<int>& global_ranks, int local_rank,
                  std::size_t heap_limit, Deadline deadline) {
  rank_ = local_rank;
  peers_.resize(contacts.size());
  for (int r = 0; r < size(); ++r) {
    peers_[r].global_rank = global_ranks[r];
    peers_[r].state = std::make_shared<std::atomic<Peer>>(Peer::kAlive);
  }
  PeerData& self = peers_[rank_];
  self.arena = TUTTI_TRY(make_arena(heap_limit));
  self.line = reinterpret_cast<BellLine*>(self.arena->base());
  self.event_owner = TUTTI_TRY(make_bell());
  self.event_fd = self.event_owner->get();
  self.bell = Bell(self.line, self.event_fd);
  self.pid = ::getpid();
  const auto about = [&](const Status& status, int r) -> Status {
    if (status.ok()) return status;
    Error error = status.error();
    error.detail = "cannot join local rank " + std::to_string(r) + " (global rank " + std::to_string(global_ranks[r]) +
                   "): " + error.detail;
    return error;
  };
  for (int r = 0; r < rank_; ++r) {
    auto socket = connect(Address{.path = contacts[r]}, deadline, true);
    if (!socket.ok()) return about(socket.status(), r);
    TUTTI_TRY(about(handshake_as_client(
                        (*socket).get(), *credentials_,
                        Hello{.role = Role::kLocal, .rank = global_rank_, .channel = std::uint64_t(rank_)}, deadline),
                    r));
    TUTTI_TRY(about(introduce(r, std::move(*socket), deadline), r));
  }
  Status met;
  while (met.ok() && !missing_callers().empty()) met = answer(global_ranks, about, deadline);
  half_open_.clear();
  TUTTI_TRY(met);
  settle_fences();
  listener_.fd.reset();
  return {};
}

// The local ranks that have to connect to this one and have not.
std::vector<int> Host::missing_callers() const {
  std::vector<int> missing;
  for (int r = rank_ + 1; r < size(); ++r)
    if (!peers_[r].socket) missing.push_back(r);
  return missing;
}

// Checks the listener and those once that have not passed the handshake yet: a silent stranger delays no rank.
Status Host::answer(const std::vector<int>& global_ranks, const std::function<Status(const Status&, int)>& about,
                    Deadline deadline) {
  if (deadline.expired()) {
    std::vector<int> ranks;
    for (int r : missing_callers()) ranks.push_back(global_ranks[r]);
    return deadline.error(ranks_words(ranks) + " on this host did not connect for shared memory",
                          "are they still running?");
  }
  std::vector<pollfd> polls;
  if (half_open_.size() < kMostHalfOpen) polls.push_back({listener_.fd.get(), POLLIN, 0});
  for (const HalfOpen& half_open : half_open_) polls.push_back({half_open.socket.get(), POLLIN, 0});
  if (::poll(polls.data(), polls.size(), deadline.at_most(kHostLook).poll_timeout_ms()) < 0 && errno != EINTR)
    return system_error(errno, "poll failed");
  while (half_open_.size() < kMostHalfOpen) {
    Fd socket = TUTTI_TRY(accept(listener_));
    if (!socket) break;
    half_open_.push_back({std::move(socket), std::make_unique<ServerHandshake>(*credentials_, Role::kLocal),
                          Deadline::after(kHostHandshakeLimit)});
  }
  Status trouble;
  std::erase_if(half_open_, [&](HalfOpen& half_open) {
    const auto finished = half_open.handshake->advance(half_open.socket.get());
    if (!finished.ok()) return true;  // a stranger: not our business, and no reason to stop
    if (!*finished) return half_open.deadline.expired();
    const std::uint64_t r = half_open.handshake->hello().channel;
    if (r > std::uint64_t(rank_) && r < peers_.size() && !peers_[r].socket && trouble.ok())
      trouble = about(introduce(int(r), std::move(half_open.socket), deadline), int(r));
    return true;
  });
  return trouble;
}

// If all ranks can be fenced, a rank that rings this one need not fence.
void Host::settle_fences() {
  bool all = true;
  for (const PeerData& peer : peers_) all &= peer.line->registered.load() != 0;
  peers_[rank_].line->fence.store(all ? 0 : 1);
}

Status Host::introduce(int local_rank, Fd socket, Deadline deadline) {
  PeerData& peer = peers_[local_rank];
  const int mine[] = {arena().fd(), own_bell_fd()};
  const HostGreeting own{.reserved = arena().reserved()};
  TUTTI_TRY(send_fds(socket.get(), mine, std::as_bytes(std::span(&own, 1)), deadline));
  Received received = TUTTI_TRY(recv_fds(socket.get(), 2, sizeof(HostGreeting), deadline));
  if (received.fds.size() != 2) return Error{.code = Code::kPeerLost, .detail = "it sent no shared memory"};
  HostGreeting theirs;
  std::memcpy(&theirs, received.bytes.data(), sizeof theirs);
  peer.arena =
      std::make_shared<Arena>(TUTTI_TRY(Arena::map(std::move(received.fds[0]), theirs.reserved, sizeof(BellLine))));
  peer.line = reinterpret_cast<BellLine*>(peer.arena->base());
  peer.event_owner = std::make_shared<Fd>(std::move(received.fds[1]));
  peer.event_fd = peer.event_owner->get();
  peer.bell = Bell(peer.line, peer.event_fd);
  if (const auto process = peer_process(socket.get())) peer.pid = process->pid;
  peer.socket = std::make_unique<Fd>(std::move(socket));
  return {};
}

Result<std::vector<std::unique_ptr<Host>>> Host::inproc(int size, std::size_t heap_limit) {
  std::vector<PeerData> shared(size);
  for (int r = 0; r < size; ++r) {
    shared[r].arena = TUTTI_TRY(make_arena(heap_limit));
    shared[r].line = reinterpret_cast<BellLine*>(shared[r].arena->base());
    shared[r].event_owner = TUTTI_TRY(make_bell());
    shared[r].event_fd = shared[r].event_owner->get();
    shared[r].bell = Bell(shared[r].line, shared[r].event_fd);
    shared[r].pid = ::getpid();
    shared[r].global_rank = r;
    shared[r].state = std::make_shared<std::atomic<Peer>>(Peer::kAlive);
  }
  std::vector<std::unique_ptr<Host>> hosts;
  for (int r = 0; r < size; ++r) {
    auto host = std::unique_ptr<Host>(new Host);
    host->rank_ = r;
    host->global_rank_ = r;
    host->peers_.resize(size);
    for (int k = 0; k < size; ++k) {
      PeerData& peer = host->peers_[k];
      peer.arena = shared[k].arena;
      peer.line = shared[k].line;
      peer.event_owner = shared[k].event_owner;
      peer.event_fd = shared[k].event_fd;
      peer.bell = shared[k].bell;
      peer.pid = shared[k].pid;
      peer.global_rank = k;
      peer.state = shared[k].state;
    }
    host->settle_fences();
    hosts.push_back(std::move(host));
  }
  return hosts;
}

Host::ArenaAddress Host::find(const void* p, std::size_t bytes) const {
  // Own memory first: the common case. A view into a peer's arena works as well.
  for (int step = 0; step < size(); ++step) {
    const int r = step == 0 ? rank_ : step <= rank_ ? step - 1 : step;
    const Arena& arena = *peers_[r].arena;
    if (arena.contains(p)) {
      const std::size_t offset = std::size_t(static_cast<const std::byte*>(p) - arena.base());
      if (offset + bytes <= arena.reserved()) return {r, offset};
    }
  }
  return {};
}

void Host::add_watched(std::vector<pollfd>& fds, std::vector<int>& local_ranks) const {
  for (int r = 0; r < size(); ++r) {
    if (!peers_[r].socket || state(r) != Peer::kAlive) continue;
    fds.push_back({peers_[r].socket->get(), POLLIN, 0});
    local_ranks.push_back(r);
  }
}

Host::Peer Host::watch(int local_rank) {
  PeerData& peer = peers_[local_rank];
  const MutexLock lock(watch_mutex_);
  if (state(local_rank) != Peer::kAlive) return state(local_rank);
  std::byte note{};
  const ssize_t got = ::recv(peer.socket->get(), &note, 1, MSG_DONTWAIT);
  if (got == 1 && note == kGoodbye)
    peer.state->store(Peer::kLeft, std::memory_order_release);
  else if (got == 1 && note == kFlight)
    peer.state->store(Peer::kFled, std::memory_order_release);
  else if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
    peer.state->store(Peer::kLost, std::memory_order_release);
  return state(local_rank);
}

void Host::goodbye(bool in_flight) {
  for (PeerData& peer : peers_)
    if (peer.socket) (void)::send(peer.socket->get(), in_flight ? &kFlight : &kGoodbye, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (!peers_.empty() && !credentials_)
    peers_[rank_].state->store(in_flight ? Peer::kFled : Peer::kLeft, std::memory_order_release);  // inproc
  for (PeerData& peer : peers_) peer.bell.ring();
}

void Host::die() {
  peers_[rank_].state->store(Peer::kLost, std::memory_order_release);
  for (PeerData& peer : peers_) peer.bell.ring_awake();
}

Host::~Host() = default;

}  // namespace tutti::transport
