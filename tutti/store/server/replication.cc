// A primary and its follower. The primary sends *entries* (what changed) as they happen, the follower carries them out
// and acknowledges with *beats*, which both send four times a second besides.
//
// When the connection between them ends, each asks: does that prove that the other's process has ended? It does if the
// kernel there closed it (not our own timer gave it up), if the other did not say *farewell* first, and if the two were
// in touch until then (standing.h). A follower asks the primary's port as well: a firewall that resets connections does
// not close ports. With proof it goes on by itself. Without, nobody is answered until go_on() is called, by somebody
// who has the majority of the nodes behind him and has seen this one's other half silent for long enough.
#include <poll.h>
#include <sys/epoll.h>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/store/server/server.h"

namespace tutti {
namespace {

constexpr std::size_t kFollowerOutput = 2 * kMaxTableBytes;  // a whole copy may be under way
constexpr Duration kProbeLimit = std::chrono::seconds(1);
constexpr int kProbePauseMs = 10;

Error stands_by(const Address& primary) {
  return Error{.code = Code::kAborted,
               .detail = "this store follows the one at " + to_string(primary) + " and does not serve",
               .hint = "ask that one"};
}

}  // namespace

Status StoreServerThread::queue(StoreConnection& connection, wire::Kind kind, std::string body) {
  return connection.queue(0, std::uint8_t(kind), std::make_shared<const std::string>(std::move(body)));
}

// ---- as the primary ----

void StoreServerThread::adopt_follower(StoreConnection& connection) {
  if (!takes_calls() || follower_ >= 0) {
    doomed_.emplace_back(connection.fd(), Error{.code = Code::kLimit, .detail = "one follower is enough"});
    (void)queue(connection, follower_ >= 0 ? wire::Kind::kFarewell : wire::Kind::kStandby, {});
    return send(connection);
  }
  follower_ = connection.fd();
  connection.output_limit = kFollowerOutput;
  streamed_ = 0;
  farewell_heard_ = false;
  {
    const MutexLock lock(touch_mutex_);
    touch_ = {};
    decided_ = has_other_ = false;
  }
  table_->begin_record();
  standing_ = StoreRole::kPrimary;  // who asks for a copy anew has not gone on
  beat();
}

void StoreServerThread::stream_entries() {
  if (follower_ < 0) return;
  StoreConnection& follower = *connections_.find(follower_)->second;
  for (auto& entry : table_->take_entries()) {
    ++streamed_;
    if (const Status queued = follower.queue_frame(std::make_shared<const std::string>(std::move(entry))); !queued.ok())
      return doomed_.emplace_back(follower_, queued.error()), void();
  }
  send(follower);
}

Status StoreServerThread::obey_follower(StoreConnection&, const wire::Frame& frame) {
  if (frame.kind == std::uint8_t(wire::Kind::kFarewell)) {
    farewell_heard_ = true;
    return Error{.code = Code::kPeerLost, .detail = "the follower has taken over"};
  }
  if (frame.kind != std::uint8_t(wire::Kind::kBeat)) return Error{.code = Code::kCorrupt, .detail = "not a beat"};
  const Beat heard = TUTTI_TRY(wire::parse_beat(frame));
  {
    const MutexLock lock(touch_mutex_);
    if (decided_) return {};
    touch_.heard(heard, now());
  }
  const bool had_copy = table_->holds();
  deliver(table_->acknowledge(heard.count));
  if (had_copy == table_->holds()) return {};
  {
    const MutexLock lock(touch_mutex_);
    has_other_ = true;
  }
  beat();  // the follower waits for this echo: from now on both can judge
  return {};
}

void StoreServerThread::lose_follower(const Error& why) {
  follower_ = -1;
  loop_->cancel(beat_timer_);
  bool ended, decided;
  {
    const MutexLock lock(touch_mutex_);
    ended = why.code == Code::kPeerLost && why.errno_value == 0 && touch_.closing_proves_death(now());
    decided = decided_;
    has_other_ = false;
  }
  if (stop_.load() || decided) return;
  if (farewell_heard_) return stand_back("its follower has taken over, because this store could not be reached");
  if (!table_->holds()) return deliver(table_->end_record());  // it had no whole copy yet
  if (ended) return go_on_alone("its follower's connection is closed");
  standing_ = StoreRole::kUndecided;
  table_->suspend();
  log::warn("the store lost its follower (" + to_string(why) +
            "), which may have taken over: nobody is answered until the nodes have decided");
}

void StoreServerThread::go_on_alone(const std::string& why) {
  standing_ = StoreRole::kPrimary;
  log::info("the store at " + to_string(address_) + " goes on without a follower: " + why);
  deliver(table_->end_record());
}

// Never to serve again.
void StoreServerThread::stand_back(const std::string& why) {
  standing_ = StoreRole::kDeposed;
  table_->suspend();
  table_->close(Error{.code = Code::kAborted,
                      .detail = "the store at " + to_string(address_) + " does not serve any more: " + why});
  log::warn("the store at " + to_string(address_) + " does not serve any more: " + why);
  for (const auto& [fd, connection] : connections_)
    doomed_.emplace_back(fd, Error{.code = Code::kPeerLost, .detail = "the store does not serve any more"});
}

// ---- as the follower ----

Result<Upstream> copy_from(const Address& primary, const Credentials& credentials, Deadline deadline) {
  Fd fd = TUTTI_TRY(connect(primary, deadline, /*retry=*/true));
  TUTTI_TRY(handshake_as_client(fd.get(), credentials, Hello{.role = Role::kStore, .channel = wire::kFollowerChannel},
                                deadline));
  Upstream upstream{.connection = std::make_unique<StoreConnection>(std::move(fd), to_string(primary)),
                    .table = std::make_shared<SharedTable>(),
                    .primary = primary};
  wire::FrameReader& reader = upstream.connection->reader();
  for (;;) {
    while (const auto frame = TUTTI_TRY(reader.next())) {
      switch (wire::Kind(frame->kind)) {
        case wire::Kind::kBeat:
          upstream.touch.heard(TUTTI_TRY(wire::parse_beat(*frame)), now());
          if (upstream.touch.closing_proves_death(now())) return upstream;  // it has echoed ours
          continue;
        case wire::Kind::kFarewell:
          return Error{.code = Code::kLimit,
                       .detail = "the store at " + to_string(primary) + " has a follower already"};
        case wire::Kind::kStandby:
          return Error{.code = Code::kRefused,
                       .detail = "the store at " + to_string(primary) + " does not serve itself",
                       .hint = "follow the one that does"};
        default:
          break;
      }
      TUTTI_TRY(upstream.table->follow(*frame));
      ++upstream.carried_out;
      if (wire::Kind(frame->kind) != wire::Kind::kCopied) continue;
      const std::string beat =
          wire::frame(wire::Kind::kBeat, wire::body_of(upstream.touch.next_beat(upstream.carried_out, now())));
      TUTTI_TRY(send_all(upstream.connection->fd(), std::as_bytes(std::span(beat)), deadline));
    }
    if (TUTTI_TRY(reader.read(upstream.connection->fd()))) continue;
    if (!TUTTI_TRY(wait_readable(upstream.connection->fd(), deadline)))
      return deadline.error("the store at " + to_string(primary) + " does not give a copy of itself");
  }
}

StoreServerThread::StoreServerThread(Listener listener, Credentials credentials, std::unique_ptr<EventLoop> loop,
                                     Upstream upstream)
    : StoreServerThread(std::move(listener), std::move(credentials), std::move(loop)) {
  standing_ = StoreRole::kFollower;
  table_ = std::move(upstream.table);
  table_->close(stands_by(upstream.primary));
  upstream_ = std::move(upstream.connection);
  carried_out_ = upstream.carried_out;
  touch_ = upstream.touch;
  has_other_ = true;
  primary_ = upstream.primary;
}

void StoreServerThread::on_upstream() {
  if (const Status read = read_upstream(); !read.ok()) lose_upstream(read.error());
}

Status StoreServerThread::read_upstream() {
  if (!TUTTI_TRY(upstream_->reader().read(upstream_->fd()))) return {};
  {  // before anything of it is carried out: go_on() must not rest on a copy that is just changing
    const MutexLock lock(touch_mutex_);
    if (!decided_) touch_.noticed(now());
  }
  while (const auto frame = TUTTI_TRY(upstream_->reader().next())) {
    if (frame->kind == std::uint8_t(wire::Kind::kFarewell)) {
      farewell_heard_ = true;
      return Error{.code = Code::kPeerLost, .detail = "the primary goes on without us"};
    }
    if (frame->kind == std::uint8_t(wire::Kind::kBeat)) {
      const Beat heard = TUTTI_TRY(wire::parse_beat(*frame));
      const MutexLock lock(touch_mutex_);
      if (!decided_) touch_.heard(heard, now());
      continue;
    }
    {
      const MutexLock lock(touch_mutex_);
      if (decided_) return {};  // what comes now is of the past
    }
    TUTTI_TRY(table_->follow(*frame));
    ++carried_out_;
  }
  {
    const MutexLock lock(touch_mutex_);
    if (decided_) return {};
    TUTTI_TRY(queue(*upstream_, wire::Kind::kBeat, wire::body_of(touch_.next_beat(carried_out_, now()))));
  }
  return upstream_->flush();
}

// Whether nobody listens at the primary's port any more. A process that ends closes one descriptor after the other, so
// it is asked again for a moment; there is no event for that.
bool StoreServerThread::primary_is_gone() const {
  const Deadline deadline = Deadline::after(kProbeLimit);
  while (!deadline.expired()) {
    const auto probe = connect(primary_, deadline, /*retry=*/false);
    if (!probe.ok()) return probe.error().errno_value == ECONNREFUSED || probe.error().errno_value == ENOENT;
    ::poll(nullptr, 0, kProbePauseMs);
  }
  return false;
}

void StoreServerThread::lose_upstream(const Error& why) {
  loop_->remove(upstream_->fd());
  loop_->cancel(beat_timer_);
  upstream_.reset();
  if (stop_.load()) return;
  {
    const MutexLock lock(touch_mutex_);
    has_other_ = false;
  }
  if (farewell_heard_) return stand_back("its primary goes on without it, because it could not be reached");
  bool ended;
  {
    const MutexLock lock(touch_mutex_);
    ended = why.code == Code::kPeerLost && why.errno_value == 0 && touch_.closing_proves_death(now());
  }
  const bool gone = why.errno_value == 0 && primary_is_gone();
  if (ended && gone) return take_over("the one at " + to_string(primary_) + " has ended");
  if (why.errno_value == 0 && !gone)  // it may have gone on alone already: our copy is of the past
    return stand_back("its connection to the primary was cut while that one lived");
  standing_ = StoreRole::kUndecided;
  log::warn("the store's follower lost the primary at " + to_string(primary_) + " (" + to_string(why) +
            "), which may go on: nobody is answered until the nodes have decided");
}

void StoreServerThread::take_over(const std::string& why) {
  standing_ = StoreRole::kPrimary;
  primary_ = {};
  table_->open();
  log::info("the store at " + to_string(address_) + " serves from now on: " + why);
}

// ---- both ----

void StoreServerThread::beat() {
  loop_->cancel(beat_timer_);
  StoreConnection* other = upstream_.get();
  if (follower_ >= 0) other = connections_.find(follower_)->second.get();
  if (other == nullptr) return;
  beat_timer_ = loop_->at(now() + kBeatEvery, [this] { beat(); });
  {
    const MutexLock lock(touch_mutex_);
    if (decided_) return;
    const Beat beat = touch_.next_beat(upstream_ ? carried_out_ : streamed_, now());
    if (!queue(*other, wire::Kind::kBeat, wire::body_of(beat)).ok()) return;
  }
  (void)other->flush().ok();  // a failure shows again when the connection is read
}

Status StoreServerThread::decide() {
  if (standing_ == StoreRole::kDeposed)
    return Error{.code = Code::kRefused,
                 .detail = "the store at " + to_string(address_) + " was replaced by the other"};
  const MutexLock lock(touch_mutex_);
  if (const auto silent = touch_.heard_too_lately(now()))
    return Error{.code = Code::kRefused,
                 .detail = "the other store was heard " + seconds_text(to_seconds(*silent)) + " ago",
                 .hint = "it counts as lost after " + seconds_text(to_seconds(kInTouch))};
  decided_ = true;
  loop_->wake();
  return {};
}

bool StoreServerThread::in_doubt() {
  if (standing_ == StoreRole::kUndecided) return true;
  const MutexLock lock(touch_mutex_);
  return has_other_ && !decided_ && !touch_.heard_too_lately(now());
}

void StoreServerThread::carry_out_decision() {
  {
    const MutexLock lock(touch_mutex_);
    if (!decided_) return;
  }
  if (follower_ >= 0) {
    StoreConnection& follower = *connections_.find(follower_)->second;
    (void)queue(follower, wire::Kind::kFarewell, {});
    (void)follower.flush().ok();
    drop(follower_, Error{.code = Code::kPeerLost, .detail = "the nodes have decided"});
    return go_on_alone("the nodes have decided so");
  }
  if (upstream_) {
    (void)queue(*upstream_, wire::Kind::kFarewell, {});
    (void)upstream_->flush().ok();
    loop_->remove(upstream_->fd());
    loop_->cancel(beat_timer_);
    upstream_.reset();
    return take_over("the nodes have decided so");
  }
  if (standing_ != StoreRole::kUndecided) return;
  if (takes_calls()) return go_on_alone("the nodes have decided so");
  take_over("the nodes have decided so");
}

}  // namespace tutti
