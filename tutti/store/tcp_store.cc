// The client. A call is one frame there and one back. While a call *waits* (get, pop, barrier, gather_all) nothing
// travels, but for a *progress* question every few seconds when somebody wants to know who is missing. On its deadline
// the call is *cancelled*: the server forgets it and tells what was missing, or the reply has crossed our cancel and
// counts.
//
// Calls that never wait are answered within some twenty microseconds when server and client have a core each, so the
// client keeps looking for that long before it sleeps in poll() (measured: 25 us a set instead of 40). Where that was
// in vain, because the server is busy with others or has no core, the next calls sleep at once, twice as many after
// each failure: 64 clients that look take the two cores from the server (25,000 calls a second and core instead of
// 52,000). Calls that may wait sleep at once: a rank that looks takes the core from the server and from the ranks it
// waits for (a gather_all of 2 takes 30 us, not 50).
#include "tutti/store/tcp_store.h"

#include <sys/socket.h>

#include <thread>

#include "tutti/base/text.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(20);
constexpr int kMostSkips = 1024;  // calls in a row that sleep at once because looking was in vain
constexpr Duration kCancelGrace =
    std::chrono::seconds(2);  // beyond a call's deadline, for the server to answer the cancel
constexpr Duration kHandshakeLimit = std::chrono::seconds(30);  // one attempt, within the caller's deadline
constexpr int kHandshakeAttempts = 4;

Error lost(const std::string& server) {
  return Error{.code = Code::kPeerLost,
               .detail = "the store at " + server + " closed the connection",
               .hint = "the process that serves the store has ended; its log (of the agent, or of rank 0) says why"};
}

// A connection that the server let in. One that is closed in the middle of the handshake is tried again: a server under
// attack may have dropped us with the crowd.
Result<Fd> let_in(const Address& server, const Credentials& credentials, int rank, Deadline deadline) {
  for (int attempt = 1;; ++attempt) {
    Fd fd = TUTTI_TRY(connect(server, deadline, /*retry=*/true));
    const Status status = handshake_as_client(fd.get(), credentials, Hello{.role = Role::kStore, .rank = rank},
                                              deadline.at_most(kHandshakeLimit));
    if (status.ok()) return fd;
    if (status.error().code != Code::kPeerLost || attempt == kHandshakeAttempts || deadline.expired()) return status;
  }
}

bool is(const wire::Frame& frame, wire::Kind kind) { return frame.kind == std::uint8_t(kind); }

}  // namespace

Result<std::unique_ptr<TcpStore>> TcpStore::connect(const Address& server, const Credentials& credentials, int rank,
                                                    Deadline deadline) {
  Fd fd = TUTTI_TRY(let_in(server, credentials, rank, deadline));
  return std::unique_ptr<TcpStore>(new TcpStore(std::move(fd), server, credentials, rank));
}

Result<std::unique_ptr<Store>> TcpStore::clone(Deadline deadline) {
  auto twin = TUTTI_TRY(connect(server_, credentials_, rank_, deadline));
  twin->set_call_timeout(call_timeout());
  return std::unique_ptr<Store>(std::move(twin));
}

Address TcpStore::local_address() const { return tutti::local_address(fd_.get()); }

Result<Watch> TcpStore::watch(const std::string& key, Deadline deadline) {
  const StoreRequest request{.op = Op::kGet, .keys = {key}};
  TUTTI_TRY(check_request(request));
  Fd fd = TUTTI_TRY(let_in(server_, credentials_, rank_, deadline));
  const std::string body = wire::body_of(request);
  const std::string frame = wire::header(1, std::uint8_t(request.op), body.size()) + body;
  TUTTI_TRY(send_all(fd.get(), std::as_bytes(std::span(frame)), deadline));
  return Watch(std::move(fd), key, to_string(server_));
}

std::optional<Result<std::string>> Watch::try_read() {
  const auto failed = [&](Error error) -> Result<std::string> {
    if (error.code == Code::kPeerLost) error = lost(server_);
    error.operation = "watch \"" + key_ + "\"";
    return error;
  };
  while (true) {
    const auto got = reader_.read(fd_.get());
    if (!got.ok()) return failed(got.error());
    const auto frame = reader_.next();
    if (!frame.ok()) return failed(frame.error());
    if (*frame) {
      auto reply = wire::parse_reply(**frame);
      if (!reply.ok()) return failed(reply.error());
      if (reply->error) return failed(*reply->error);
      if (reply->values.size() != 1)
        return failed(Error{.code = Code::kCorrupt, .detail = "the store answered no value"});
      return std::move(reply->values[0]);
    }
    if (!*got) return std::nullopt;
  }
}

// From now on the connection is of no use.
Error TcpStore::break_off(Error error) {
  if (error.code == Code::kPeerLost) error = lost(to_string(server_));
  broken_ = error;
  fd_.reset();
  return error;
}

Status TcpStore::send(std::uint32_t id, std::uint8_t kind, std::string_view body, Deadline deadline) {
  std::string frame = wire::header(id, kind, body.size());
  frame += body;
  return send_all(fd_.get(), std::as_bytes(std::span(frame)), deadline);
}

// The next frame; none once the deadline has passed.
Result<std::optional<wire::Frame>> TcpStore::receive(Deadline deadline, bool may_spin) {
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
    if (!TUTTI_TRY(wait_readable(fd_.get(), deadline))) return std::optional<wire::Frame>();
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

Result<Reply> TcpStore::call(const StoreRequest& request, Deadline deadline, const Waiting& waiting) {
  const std::lock_guard lock(mutex_);
  if (broken_) return *broken_;
  const std::uint32_t id = next_id_++;
  if (const Status sent = send(id, std::uint8_t(request.op), wire::body_of(request), deadline); !sent.ok())
    return break_off(sent.error());
  while (true) {
    const auto frame =
        receive(waiting ? deadline.at_most(from_seconds(kReportEvery)) : deadline, !may_wait(request.op));
    if (!frame.ok()) return break_off(frame.error());
    if (!*frame) {
      if (deadline.expired()) return give_up(id, request, deadline);
      if (const Status asked = send(id, std::uint8_t(wire::Kind::kProgress), {}, deadline); !asked.ok())
        return break_off(asked.error());
      continue;
    }
    if ((*frame)->id != id) continue;  // the answer to a progress question may trail the reply of an earlier call
    if (is(**frame, wire::Kind::kMissing)) {
      const auto missing = wire::parse_missing(**frame);
      if (!missing.ok()) return break_off(missing.error());
      if (waiting && !missing->ranks.empty()) waiting(missing->ranks, deadline.waited());
      continue;
    }
    auto reply = wire::parse_reply(**frame);
    if (!reply.ok()) return break_off(reply.error());
    return reply;
  }
}

// The deadline has passed. A reply that was under way already still counts.
Result<Reply> TcpStore::give_up(std::uint32_t id, const StoreRequest& request, Deadline deadline) {
  const Deadline grace = Deadline::after(kCancelGrace);
  std::optional<Reply> crossed;
  if (const Status sent = send(id, std::uint8_t(wire::Kind::kCancel), {}, grace); !sent.ok())
    return break_off(sent.error());
  while (true) {
    const auto frame = receive(grace, /*spin=*/false);
    if (!frame.ok()) return break_off(frame.error());
    if (!*frame) {
      Error error = deadline.error("the store at " + to_string(server_) + " does not answer",
                                   "the process that serves it is stopped, or its machine cannot be reached");
      return break_off(std::move(error));
    }
    if ((*frame)->id != id) continue;
    if (is(**frame, wire::Kind::kCancelled)) {
      if (crossed) return *std::move(crossed);
      const auto missing = wire::parse_missing(**frame);
      if (!missing.ok()) return break_off(missing.error());
      return timeout_error(request, *missing, deadline);
    }
    if (is(**frame, wire::Kind::kMissing)) continue;
    auto reply = wire::parse_reply(**frame);
    if (!reply.ok()) return break_off(reply.error());
    crossed = *std::move(reply);
  }
}

}  // namespace tutti
