// The client. A call is one frame there and one back. While a call *waits* (get, pop, barrier, gather_all) nothing
// travels, but for a *progress* question every few seconds when the caller wants to know which ranks are missing. On
// its deadline the call is *cancelled*: the server forgets it and tells what was missing, or the reply has crossed our
// cancel and counts.
//
// Calls that never wait are answered within some twenty microseconds when server and client have a core each, so the
// client keeps looking for that long before it sleeps in poll() (measured: 25 us a set instead of 40). Where that was
// in vain, because the server is busy with others or has no core, the next calls sleep at once, twice as many after
// each failure: 64 clients that look take the two cores from the server (25,000 calls a second and core instead of
// 52,000). Calls that may wait sleep at once: a rank that looks takes the core from the server and from the ranks it
// waits for (a gather_all of 2 takes 30 us, not 50).
#include "tutti/store/tcp_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tutti/base/text.h"
#include "tutti/transport/crypto.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(20);
constexpr int kMostSkips = 1024;  // calls in a row that sleep at once because looking was in vain
constexpr Duration kCancelGrace =
    std::chrono::seconds(2);  // beyond a call's deadline, for the server to answer the cancel
constexpr Duration kStoreHandshakeLimit = std::chrono::seconds(30);  // one attempt, within the caller's deadline
constexpr int kHandshakeAttempts = 4;
// Where there are several servers:
constexpr Duration kOneServer = std::chrono::seconds(2);       // for one of them to let us in
constexpr Duration kTakeOverLimit = std::chrono::seconds(10);  // for the other to serve when one is lost
constexpr Duration kSuspicion = std::chrono::seconds(3);  // of silence, before the other is asked whether it serves
constexpr int kReconnectPauseMs = 20;                     // between two rounds

Error lost(const std::string& server) {
  return Error{.code = Code::kPeerLost,
               .detail = "the store at " + server + " closed the connection",
               .hint = "the process that serves the store has ended; its log (of the agent, or of rank 0) says why"};
}

// A connection that the server let in. One that is closed in the middle of the handshake is tried again: a server under
// attack may have dropped us with the crowd.
Result<Fd> let_in(const transport::Address& server, const transport::Credentials& credentials, int rank, bool retry,
                  Deadline deadline) {
  for (int attempt = 1;; ++attempt) {
    Fd fd = TUTTI_TRY(connect(server, deadline, retry));
    const Status status = transport::handshake_as_client(
        fd.get(), credentials, transport::Hello{.role = transport::Role::kStore, .rank = rank},
        deadline.at_most(kStoreHandshakeLimit));
    if (status.ok()) return fd;
    if (status.error().code != Code::kPeerLost || attempt == kHandshakeAttempts || deadline.expired()) return status;
  }
}

std::uint64_t random_client() {
  std::uint64_t client = 0;
  while (client == 0) crypto::fill_random(std::as_writable_bytes(std::span(&client, 1)));
  return client;
}

bool is(const store::wire::Frame& frame, store::wire::Kind kind) { return frame.kind == std::uint8_t(kind); }

// Whether the server serves; from now on it knows this connection as the client's.
Result<bool> open_session(int fd, std::uint64_t client, Deadline deadline) {
  const std::string hello = store::wire::frame(store::wire::Kind::kSession, store::wire::body_of_client(client));
  TUTTI_TRY(transport::send_all(fd, std::as_bytes(std::span(hello)), deadline));
  store::wire::FrameReader reader;
  while (true) {
    if (const auto frame = TUTTI_TRY(reader.next())) return is(*frame, store::wire::Kind::kSession);
    if (!TUTTI_TRY(transport::wait_readable(fd, deadline))) return deadline.error("the store does not answer");
    TUTTI_TRY(reader.read(fd));
  }
}

}  // namespace

Result<std::unique_ptr<TcpStore>> TcpStore::connect(const transport::Address& server,
                                                    const transport::Credentials& credentials, int rank,
                                                    Deadline deadline) {
  return connect(std::vector<transport::Address>{server}, credentials, rank, deadline);
}

Result<std::unique_ptr<TcpStore>> TcpStore::connect(std::vector<transport::Address> servers,
                                                    const transport::Credentials& credentials, int rank,
                                                    Deadline deadline) {
  if (servers.empty()) return invalid_argument("no server of a store was named");
  std::unique_ptr<TcpStore> store(new TcpStore(std::move(servers), credentials, rank));
  {
    const MutexLock lock(store->mutex_);
    TUTTI_TRY(store->open(deadline));
  }
  return store;
}

TcpStore::TcpStore(std::vector<transport::Address> servers, transport::Credentials credentials, int rank)
    : servers_(std::move(servers)),
      credentials_(std::move(credentials)),
      rank_(rank),
      client_(servers_.size() > 1 ? random_client() : 0) {}

TcpStore::~TcpStore() {
  if (client_ == 0 || !fd_) return;
  const std::string goodbye =
      store::wire::frame(store::wire::Kind::kGoodbye);  // if it does not fit now, the server forgets us later
  (void)::send(fd_.get(), goodbye.data(), goodbye.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Status TcpStore::open(Deadline deadline) {
  Found found = TUTTI_TRY(find(current_, 0, client_, deadline));
  fd_ = std::move(found.fd);
  current_ = found.server;
  reader_ = {};
  return {};
}

// The server that serves, beginning with `first`. With several, none of them is waited for, but all are tried again
// until the deadline, or `tries` times (0: no limit).
Result<TcpStore::Found> TcpStore::find(std::size_t first, std::size_t tries, std::uint64_t client,
                                       Deadline deadline) const {
  if (servers_.size() == 1) return Found{TUTTI_TRY(let_in(servers_[0], credentials_, rank_, true, deadline)), 0};
  Error last;
  for (std::size_t tried = 0; tries == 0 || tried < tries; ++tried) {
    const std::size_t server = (first + tried) % servers_.size();
    const Deadline limit = deadline.at_most(kOneServer);
    auto fd = let_in(servers_[server], credentials_, rank_, false, limit);
    if (!fd.ok()) {
      const Code code = fd.error().code;
      if (code == Code::kRefused) return fd.status();
      last = fd.error();
    } else {
      const auto serves = open_session(fd->get(), client, limit);
      if (serves.ok() && *serves) return Found{*std::move(fd), server};
      last = serves.ok() ? Error{.code = Code::kPeerLost, .detail = "it is a standby that does not serve"}
                         : serves.error();
    }
    if (deadline.expired()) break;
    if ((tried + 1) % servers_.size() != 0) continue;
    // Nothing tells when a standby takes over, so this one wait is a pause.
    ::poll(nullptr, 0, std::min(kReconnectPauseMs, deadline.poll_timeout_ms()));
  }
  return Error{.code = Code::kUnreachable,
               .detail = "no store serves at " + to_string(servers_) + " (" + last.detail + ")",
               .hint =
                   "both processes that could serve it have ended, or their machines cannot be reached; their logs "
                   "say why",
               .waited = deadline.waited(),
               .limit = deadline.limit()};
}

Result<std::unique_ptr<Store>> TcpStore::clone(Deadline deadline) {
  auto copy = TUTTI_TRY(connect(servers_, credentials_, rank_, deadline));
  copy->set_call_timeout(call_timeout());
  return std::unique_ptr<Store>(std::move(copy));
}

transport::Address TcpStore::server() const { return servers_[current_]; }

transport::Address TcpStore::local_address() const {
  const MutexLock lock(mutex_);
  return transport::local_address(fd_.get());
}

Result<Watch> TcpStore::watch(const std::string& key, Deadline deadline, bool goes_over) {
  const store::Request request{.op = store::Op::kGet, .keys = {key}};
  TUTTI_TRY(store::check_request(request));
  const std::string body = store::wire::body_of(request);
  const std::string frame = store::wire::header(1, std::uint8_t(request.op), body.size()) + body;
  // A store of its own, so that the watch may live longer than this one.
  const auto places = goes_over ? servers_ : std::vector{server()};
  const std::shared_ptr<TcpStore> seeker(new TcpStore(places, credentials_, rank_));
  const auto open = [seeker, frame](Deadline limit) -> Result<Fd> {
    Found found = TUTTI_TRY(seeker->find(seeker->current_, 0, random_client(), limit));
    seeker->current_ = found.server;
    TUTTI_TRY(transport::send_all(found.fd.get(), std::as_bytes(std::span(frame)), limit));
    return std::move(found.fd);
  };
  if (goes_over) seeker->current_ = current_.load();
  Fd fd = TUTTI_TRY(open(deadline));
  return Watch(std::move(fd), key, to_string(places), places.size() > 1 ? Watch::Reopen(open) : Watch::Reopen());
}

// The value, none if it has not come yet, kPeerLost if this connection brings it no more.
Result<std::optional<std::string>> Watch::read() {
  while (true) {
    const bool got = TUTTI_TRY(reader_.read(fd_.get()));
    if (const auto frame = TUTTI_TRY(reader_.next())) {
      if (is(*frame, store::wire::Kind::kStandby))
        return Error{.code = Code::kPeerLost, .detail = "the store no longer serves"};
      auto reply = TUTTI_TRY(store::wire::parse_reply(*frame));
      if (reply.error) return *reply.error;
      if (reply.values.size() != 1) return Error{.code = Code::kCorrupt, .detail = "the store answered no value"};
      return std::optional(std::move(reply.values[0]));
    }
    if (!got) return std::optional<std::string>();
  }
}

std::optional<Result<std::string>> Watch::try_read() {
  auto value = read();
  while (!value.ok() && value.error().code == Code::kPeerLost && reopen_) {
    auto fd = reopen_(Deadline::after(kTakeOverLimit));
    if (!fd.ok()) break;
    if (::dup3(fd->get(), fd_.get(), O_CLOEXEC) < 0) break;  // who polls fd() need not know
    reader_ = {};
    value = read();
  }
  if (value.ok() && !*value) return std::nullopt;
  if (value.ok()) return Result<std::string>(**std::move(value));
  Error error = value.error();
  if (error.code == Code::kPeerLost) error = lost(server_);
  error.operation = "watch \"" + key_ + "\"";
  return Result<std::string>(std::move(error));
}

// Marks the connection as broken.
Error TcpStore::break_off(Error error) {
  if (error.code == Code::kPeerLost) error = lost(to_string(servers_[current_]));
  broken_ = error;
  fd_.reset();
  return error;
}

Status TcpStore::send(std::uint32_t id, std::uint8_t kind, std::string_view body, Deadline deadline) {
  std::string frame = store::wire::header(id, kind, body.size());
  frame += body;
  return transport::send_all(fd_.get(), std::as_bytes(std::span(frame)), deadline);
}

// The next frame; none once the deadline has passed.
Result<std::optional<store::wire::Frame>> TcpStore::receive(Deadline deadline, bool may_spin) {
  static const bool has_cores = std::thread::hardware_concurrency() > 1;
  if (auto frame = TUTTI_TRY(reader_.next())) return frame;
  const bool spin = may_spin && has_cores && spin_.worth_it();
  if (spin) {
    const auto until = now() + kSpin;
    do {
      if (!TUTTI_TRY(reader_.read(fd_.get()))) continue;
      if (auto frame = TUTTI_TRY(reader_.next())) {
        spin_.paid_off();
        return frame;
      }
    } while (now() < until);
    spin_.was_in_vain();
  }
  while (true) {
    if (!TUTTI_TRY(transport::wait_readable(fd_.get(), deadline))) return std::optional<store::wire::Frame>();
    TUTTI_TRY(reader_.read(fd_.get()));
    if (auto frame = TUTTI_TRY(reader_.next())) return frame;
  }
}

bool TcpStore::Spin::worth_it() { return skip == 0 || --skip == 0; }
void TcpStore::Spin::paid_off() { next_skip = 1; }
void TcpStore::Spin::was_in_vain() {
  skip = next_skip;
  next_skip = std::min(next_skip * 2, kMostSkips);
}

// With several servers a lost connection is not the end: the call goes to the one that serves now, under its old id, by
// which that one knows whether it was carried out already.
Result<store::Reply> TcpStore::call(const store::Request& request, Deadline deadline, const Waiting& waiting) {
  const MutexLock lock(mutex_);
  if (broken_) return *broken_;
  const std::uint32_t id = next_id_++;
  while (true) {
    auto reply = converse(id, request, deadline, waiting);
    const bool is_lost = !reply.ok() && reply.error().code == Code::kPeerLost;
    if (!is_lost || broken_) return reply;
    if (servers_.size() == 1) return break_off(reply.error());
    current_ = (current_ + 1) % servers_.size();
    if (const Status found = open(deadline.at_most(kTakeOverLimit)); !found.ok()) return break_off(found.error());
  }
}

// Whether another server than the current one serves; then it is the current one.
bool TcpStore::other_serves() {
  auto found = find(current_ + 1, servers_.size() - 1, client_, Deadline::after(kOneServer));
  if (!found.ok()) return false;
  fd_ = std::move(found->fd);
  current_ = found->server;
  reader_ = {};
  return true;
}

// kPeerLost: this server cannot answer any more. After any other error but a timeout the connection is broken off.
Result<store::Reply> TcpStore::converse(std::uint32_t id, const store::Request& request, Deadline deadline,
                                        const Waiting& waiting) {
  const bool has_successor = servers_.size() > 1;
  const std::string body = store::wire::body_of(request);
  const auto fatal = [this](Error error) TUTTI_REQUIRES(mutex_) {
    return error.code == Code::kPeerLost ? error : break_off(std::move(error));
  };
  const auto ask = [&]() TUTTI_REQUIRES(mutex_) { return send(id, std::uint8_t(request.op), body, deadline); };
  if (const Status sent = ask(); !sent.ok()) return fatal(sent.error());
  Duration slice = deadline.remaining();
  if (waiting) slice = std::min(slice, from_seconds(kReportEvery));
  if (has_successor) slice = std::min(slice, kSuspicion);
  auto next_report = now() + from_seconds(kReportEvery);
  while (true) {
    const auto frame = receive(deadline.at_most(slice), !store::may_wait(request.op));
    if (!frame.ok()) return fatal(frame.error());
    if (!*frame) {
      if (deadline.expired()) return give_up(id, request, deadline);
      Status sent;
      if (has_successor && other_serves()) sent = ask();
      if (sent.ok() && waiting && now() >= next_report) {
        next_report = now() + from_seconds(kReportEvery);
        sent = send(id, std::uint8_t(store::wire::Kind::kProgress), {}, deadline);
      }
      if (!sent.ok()) return fatal(sent.error());
      continue;
    }
    if (is(**frame, store::wire::Kind::kStandby))
      return Error{.code = Code::kPeerLost, .detail = "it no longer serves"};
    if ((*frame)->id != id) continue;  // the answer to a progress question may trail the reply of an earlier call
    if (is(**frame, store::wire::Kind::kMissing)) {
      const auto missing = store::wire::parse_missing(**frame);
      if (!missing.ok()) return fatal(missing.error());
      if (waiting && !missing->ranks.empty()) waiting(missing->ranks, deadline.waited());
      continue;
    }
    auto reply = store::wire::parse_reply(**frame);
    if (!reply.ok()) return fatal(reply.error());
    return reply;
  }
}

// The deadline has passed. A reply that was under way already still counts.
Result<store::Reply> TcpStore::give_up(std::uint32_t id, const store::Request& request, Deadline deadline) {
  const Deadline grace = Deadline::after(kCancelGrace);
  std::optional<store::Reply> crossed;
  if (const Status sent = send(id, std::uint8_t(store::wire::Kind::kCancel), {}, grace); !sent.ok())
    return break_off(sent.error());
  while (true) {
    const auto frame = receive(grace, /*spin=*/false);
    if (!frame.ok()) return break_off(frame.error());
    if (!*frame) {
      Error error = deadline.error("the store at " + to_string(servers_[current_]) + " does not answer",
                                   "the process that serves it is stopped, or its machine cannot be reached");
      return break_off(std::move(error));
    }
    if ((*frame)->id != id) continue;
    if (is(**frame, store::wire::Kind::kCancelled)) {
      if (crossed) return *std::move(crossed);
      const auto missing = store::wire::parse_missing(**frame);
      if (!missing.ok()) return break_off(missing.error());
      return timeout_error(request, *missing, deadline);
    }
    if (is(**frame, store::wire::Kind::kMissing)) continue;
    auto reply = store::wire::parse_reply(**frame);
    if (!reply.ok()) return break_off(reply.error());
    crossed = *std::move(reply);
  }
}

Result<std::vector<transport::Address>> parse_servers(std::string_view text) {
  std::vector<transport::Address> servers;
  for (const std::string& one : split(text, ',')) servers.push_back(TUTTI_TRY(transport::parse_address(trim(one))));
  return servers;
}

std::string to_string(const std::vector<transport::Address>& servers) {
  std::vector<std::string> texts;
  for (const transport::Address& server : servers) texts.push_back(to_string(server));
  return join(texts, ",");
}

}  // namespace tutti
