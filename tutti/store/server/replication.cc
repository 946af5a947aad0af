// When the connection between a primary and its standby ends, each asks: does that prove that the other's process has
// ended? It does if the kernel there closed it (not our own timer gave it up), if the other did not say *farewell*
// first, and if the two were in contact until then. A standby also tries the primary's port: a firewall that resets
// connections does not close ports. With that proof a server serves on by itself. Without it, no client is answered
// until serve_alone() is called, by a node that has the majority of the nodes behind it and has seen the other server
// silent for long enough.
#include "tutti/store/server/replication.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/transport/socket.h"

namespace tutti::store {
namespace {

constexpr std::size_t kStandbyOutput = 2 * kMaxTableBytes;  // a whole copy may be under way
constexpr Duration kProbeLimit = std::chrono::seconds(1);
constexpr int kProbePauseMs = 10;
constexpr const char* kNodesDecided = "the nodes have decided so";

}  // namespace

// ---- contact ----

std::int64_t Contact::stamp_of(Clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
}

wire::Heartbeat Contact::next_heartbeat(std::uint64_t count, Clock::time_point moment) const {
  return {.count = count, .stamp = stamp_of(moment), .echo = last_stamp_};
}

void Contact::on_heartbeat(const wire::Heartbeat& heartbeat, Clock::time_point moment) {
  last_stamp_ = heartbeat.stamp;
  echoed_ = std::max(echoed_, std::min(heartbeat.echo, stamp_of(moment)));
  heard_at_ = moment;
}

bool Contact::closing_proves_exit(Clock::time_point moment) const {
  return echoed_ != 0 && stamp_of(moment) - echoed_ < Duration(kContactLimit).count();
}

std::optional<Duration> Contact::heard_too_recently(Clock::time_point moment) const {
  const Duration silent = moment - heard_at_;
  return silent < kContactLimit ? std::optional(silent) : std::nullopt;
}

// ---- as the primary ----

void Replication::adopt_standby(Connection& connection) {
  if (!takes_calls() || standby_ != nullptr) {
    clients_.drop_later(connection.fd(), Error{.code = Code::kLimit, .detail = "one standby is enough"});
    (void)connection.queue(standby_ != nullptr ? wire::Kind::kFarewell : wire::Kind::kStandby);
    return clients_.send(connection);
  }
  standby_ = &connection;
  connection.output_limit = kStandbyOutput;
  sent_ = 0;
  farewell_heard_ = false;
  {
    const MutexLock lock(mutex_);
    contact_ = {};
    decided_ = paired_ = false;
  }
  table_.begin_replication();
  role_ = StoreRole::kPrimary;  // a standby that asks for a new copy has not taken over
  send_heartbeat();
}

void Replication::send_entries() {
  if (standby_ == nullptr) return;
  for (auto& entry : table_.take_entries()) {
    ++sent_;
    if (const Status queued = standby_->queue_frame(std::move(entry)); !queued.ok())
      return clients_.drop_later(standby_->fd(), queued.error());
  }
  clients_.send(*standby_);
}

Status Replication::obey_standby(const wire::Frame& frame) {
  if (frame.kind == std::uint8_t(wire::Kind::kFarewell)) {
    farewell_heard_ = true;
    return Error{.code = Code::kPeerLost, .detail = "the standby has taken over"};
  }
  if (frame.kind != std::uint8_t(wire::Kind::kHeartbeat))
    return Error{.code = Code::kCorrupt, .detail = "not a heartbeat"};
  const wire::Heartbeat heartbeat = TUTTI_TRY(wire::parse_heartbeat(frame));
  {
    const MutexLock lock(mutex_);
    if (decided_) return {};
    contact_.on_heartbeat(heartbeat, now());
  }
  const bool had_copy = table_.standby_has_copy();
  clients_.deliver(table_.acknowledge(heartbeat.count));
  if (had_copy == table_.standby_has_copy()) return {};
  {
    const MutexLock lock(mutex_);
    paired_ = true;
  }
  send_heartbeat();  // the standby waits for this echo: from now on both can judge
  return {};
}

void Replication::lose_standby(const Error& why) {
  standby_ = nullptr;
  loop_.cancel(heartbeat_timer_);
  const bool ended = connection_proves_exit(why);
  {
    const MutexLock lock(mutex_);
    paired_ = false;
    if (decided_) return;
  }
  if (stopped_.load()) return;
  if (farewell_heard_) return demote("its standby has taken over, because this store could not be reached");
  if (!table_.standby_has_copy()) return clients_.deliver(table_.end_replication());
  if (ended) return continue_alone("its standby's connection is closed");
  role_ = StoreRole::kUndecided;
  table_.suspend();
  log::warn("the store lost its standby (" + to_string(why) +
            "), which may have taken over: no call is answered until the nodes have decided");
}

void Replication::continue_alone(const std::string& why) {
  role_ = StoreRole::kPrimary;
  log::info("the store at " + to_string(address_) + " continues without a standby: " + why);
  clients_.deliver(table_.end_replication());
}

// ---- as the standby ----

Result<Upstream> copy_from(const transport::Address& primary, const transport::Credentials& credentials,
                           Deadline deadline) {
  Fd fd = TUTTI_TRY(connect(primary, deadline, /*retry=*/true));
  TUTTI_TRY(transport::handshake_as_client(
      fd.get(), credentials, transport::Hello{.role = transport::Role::kStore, .channel = wire::kStandbyChannel},
      deadline));
  Upstream upstream{.connection = std::make_unique<Connection>(std::move(fd), to_string(primary)),
                    .table = std::make_shared<SharedTable>(),
                    .primary = primary};
  wire::FrameReader& reader = upstream.connection->reader();
  for (;;) {
    while (const auto frame = TUTTI_TRY(reader.next())) {
      switch (wire::Kind(frame->kind)) {
        case wire::Kind::kHeartbeat:
          upstream.contact.on_heartbeat(TUTTI_TRY(wire::parse_heartbeat(*frame)), now());
          if (upstream.contact.closing_proves_exit(now())) return upstream;  // it has echoed ours
          continue;
        case wire::Kind::kFarewell:
          return Error{.code = Code::kLimit, .detail = "the store at " + to_string(primary) + " already has a standby"};
        case wire::Kind::kStandby:
          return Error{.code = Code::kRefused,
                       .detail = "the store at " + to_string(primary) + " does not serve itself",
                       .hint = "follow the one that does"};
        default:
          break;
      }
      TUTTI_TRY(upstream.table->apply_entry(*frame));
      ++upstream.carried_out;
      if (wire::Kind(frame->kind) != wire::Kind::kCopied) continue;
      const std::string heartbeat = wire::frame(
          wire::Kind::kHeartbeat, wire::body_of(upstream.contact.next_heartbeat(upstream.carried_out, now())));
      TUTTI_TRY(transport::send_all(upstream.connection->fd(), std::as_bytes(std::span(heartbeat)), deadline));
    }
    if (TUTTI_TRY(reader.read(upstream.connection->fd()))) continue;
    if (!TUTTI_TRY(transport::wait_readable(upstream.connection->fd(), deadline)))
      return deadline.error("the store at " + to_string(primary) + " does not send a copy of itself");
  }
}

void Replication::become_standby(Upstream upstream) {
  role_ = StoreRole::kStandby;
  table_.close(Error{.code = Code::kAborted,
                     .detail = "this store follows the one at " + to_string(upstream.primary) + " and does not serve",
                     .hint = "ask that one"});
  upstream_ = std::move(upstream.connection);
  carried_out_ = upstream.carried_out;
  primary_ = upstream.primary;
  const MutexLock lock(mutex_);
  contact_ = upstream.contact;
  paired_ = true;
}

void Replication::start() {
  if (!upstream_) return;
  if (const Status added = loop_.add(upstream_->fd(), EPOLLIN, [this](std::uint32_t) { on_upstream(); }); !added.ok())
    lose_upstream(added.error());
  send_heartbeat();
}

void Replication::on_upstream() {
  if (const Status read = read_upstream(); !read.ok()) lose_upstream(read.error());
}

Status Replication::read_upstream() {
  if (!TUTTI_TRY(upstream_->reader().read(upstream_->fd()))) return {};
  {  // before any of it is carried out: serve_alone() must not rest on a copy that is just changing
    const MutexLock lock(mutex_);
    if (!decided_) contact_.on_traffic(now());
  }
  while (const auto frame = TUTTI_TRY(upstream_->reader().next())) {
    if (frame->kind == std::uint8_t(wire::Kind::kFarewell)) {
      farewell_heard_ = true;
      return Error{.code = Code::kPeerLost, .detail = "the primary continues without this standby"};
    }
    if (frame->kind == std::uint8_t(wire::Kind::kHeartbeat)) {
      const wire::Heartbeat heartbeat = TUTTI_TRY(wire::parse_heartbeat(*frame));
      const MutexLock lock(mutex_);
      if (!decided_) contact_.on_heartbeat(heartbeat, now());
      continue;
    }
    {
      const MutexLock lock(mutex_);
      if (decided_) return {};  // what comes now is of the past
    }
    TUTTI_TRY(table_.apply_entry(*frame));
    ++carried_out_;
  }
  {
    const MutexLock lock(mutex_);
    if (decided_) return {};
    TUTTI_TRY(upstream_->queue(wire::Kind::kHeartbeat, wire::body_of(contact_.next_heartbeat(carried_out_, now()))));
  }
  return upstream_->flush();
}

void Replication::close_upstream() {
  loop_.remove(upstream_->fd());
  loop_.cancel(heartbeat_timer_);
  upstream_.reset();
}

// A process that ends closes one descriptor after the other, and resets connections that it has not accepted. So the
// port is tried again for a moment; there is no event for that.
bool is_gone(const transport::Address& primary) {
  const Deadline deadline = Deadline::after(kProbeLimit);
  while (!deadline.expired()) {
    const auto probe = connect(primary, deadline, /*retry=*/false);
    if (!probe.ok() && (probe.error().errno_value == ECONNREFUSED || probe.error().errno_value == ENOENT)) return true;
    ::poll(nullptr, 0, kProbePauseMs);
  }
  return false;
}

void Replication::lose_upstream(const Error& why) {
  close_upstream();
  if (stopped_.load()) return;
  {
    const MutexLock lock(mutex_);
    paired_ = false;
  }
  if (farewell_heard_) return demote("its primary continues without it, because it could not be reached");
  const bool ended = connection_proves_exit(why);
  const bool gone = why.errno_value == 0 && is_gone(primary_);
  if (ended && gone) return take_over("the one at " + to_string(primary_) + " has ended");
  if (why.errno_value == 0 && !gone)  // it may have continued alone already: our copy is of the past
    return demote("its connection to the primary was cut while the primary was running");
  role_ = StoreRole::kUndecided;
  log::warn("the store's standby lost the primary at " + to_string(primary_) + " (" + to_string(why) +
            "), which may still serve: no call is answered until the nodes have decided");
}

void Replication::take_over(const std::string& why) {
  role_ = StoreRole::kPrimary;
  primary_ = {};
  table_.open();
  log::info("the store at " + to_string(address_) + " serves from now on: " + why);
}

// ---- both ----

bool Replication::connection_proves_exit(const Error& why) {
  const MutexLock lock(mutex_);
  return why.code == Code::kPeerLost && why.errno_value == 0 && contact_.closing_proves_exit(now());
}

// Never to serve again.
void Replication::demote(const std::string& why) {
  const std::string sentence = "the store at " + to_string(address_) + " no longer serves: " + why;
  role_ = StoreRole::kDemoted;
  table_.suspend();
  table_.close(Error{.code = Code::kAborted, .detail = sentence});
  log::warn(sentence);
  clients_.drop_all_later(Error{.code = Code::kPeerLost, .detail = "the store no longer serves"});
}

void Replication::send_heartbeat() {
  loop_.cancel(heartbeat_timer_);
  Connection* const other = standby_ != nullptr ? standby_ : upstream_.get();
  if (other == nullptr) return;
  heartbeat_timer_ = loop_.at(now() + kHeartbeatEvery, [this] { send_heartbeat(); });
  {
    const MutexLock lock(mutex_);
    if (decided_) return;
    const wire::Heartbeat heartbeat = contact_.next_heartbeat(upstream_ ? carried_out_ : sent_, now());
    if (!other->queue(wire::Kind::kHeartbeat, wire::body_of(heartbeat)).ok()) return;
  }
  (void)other->flush().ok();  // a failure shows again when the connection is read
}

Status Replication::serve_alone() {
  if (role_ == StoreRole::kDemoted)
    return Error{.code = Code::kRefused,
                 .detail = "the store at " + to_string(address_) + " was replaced by the other"};
  const MutexLock lock(mutex_);
  if (const auto silent = contact_.heard_too_recently(now()))
    return Error{.code = Code::kRefused,
                 .detail = "the other store was heard " + seconds_text(to_seconds(*silent)) + " ago",
                 .hint = "it counts as lost after " + seconds_text(to_seconds(kContactLimit))};
  decided_ = true;
  loop_.wake();
  return {};
}

bool Replication::in_doubt() const {
  if (role_ == StoreRole::kUndecided) return true;
  const MutexLock lock(mutex_);
  return paired_ && !decided_ && !contact_.heard_too_recently(now());
}

void Replication::carry_out_decision() {
  {
    const MutexLock lock(mutex_);
    if (!decided_) return;
  }
  if (standby_ != nullptr) {
    (void)standby_->queue(wire::Kind::kFarewell);
    (void)standby_->flush().ok();
    clients_.drop(standby_->fd(), Error{.code = Code::kPeerLost, .detail = kNodesDecided});
    return continue_alone(kNodesDecided);
  }
  if (upstream_) {
    (void)upstream_->queue(wire::Kind::kFarewell);
    (void)upstream_->flush().ok();
    close_upstream();
    return take_over(kNodesDecided);
  }
  if (role_ != StoreRole::kUndecided) return;
  if (takes_calls()) return continue_alone(kNodesDecided);
  take_over(kNodesDecided);
}

}  // namespace tutti::store
