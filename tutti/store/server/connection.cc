// A connection that was let in: frames become requests to the table, and the table's answers, to it or to others,
// become frames. A connection that opens a session replaces an earlier one of the same client, which is only not known
// to be lost yet: its open calls are withdrawn before the client repeats them.
#include <sys/epoll.h>

#include "tutti/base/log.h"
#include "tutti/store/server/server.h"

namespace tutti {
namespace {

constexpr std::size_t kMaxOpenCalls = 1024;  // of one client

}  // namespace

void StoreServerThread::let_in(HalfOpens::iterator half_open) {
  let_in_.fetch_add(1);
  loop_->cancel(half_open->limit);
  const int fd = half_open->fd.get();
  loop_->remove(fd);
  const int rank = half_open->handshake.hello().rank;
  const bool follows = half_open->handshake.hello().channel == wire::kFollowerChannel;
  auto connection = std::make_unique<StoreConnection>(
      std::move(half_open->fd), (rank < 0 ? "" : "rank " + std::to_string(rank) + " at ") + half_open->peer);
  half_open_.erase(half_open);
  resume();
  if (!loop_->add(fd, EPOLLIN, [this, fd](std::uint32_t events) { on_ready(fd, events); }).ok()) return;
  StoreConnection& kept = *connections_.emplace(fd, std::move(connection)).first->second;
  if (follows) adopt_follower(kept);
}

void StoreServerThread::on_ready(int fd, std::uint32_t events) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  StoreConnection& connection = *found->second;
  if (events & EPOLLOUT) send(connection);
  if (events & ~std::uint32_t(EPOLLOUT)) {
    const Status served = serve(connection);
    if (!served.ok()) doomed_.emplace_back(fd, served.error());
  }
}

// One read per event: level-triggered epoll comes back for the rest, after the others had their turn.
Status StoreServerThread::serve(StoreConnection& connection) {
  if (!TUTTI_TRY(connection.reader().read(connection.fd()))) return {};
  while (const auto frame = TUTTI_TRY(connection.reader().next())) TUTTI_TRY(obey(connection, *frame));
  return {};
}

Status StoreServerThread::open_session(StoreConnection& connection, const wire::Frame& frame) {
  const std::uint64_t client = TUTTI_TRY(wire::parse_client(frame));
  // Else sessions_ would keep this descriptor under the first client, and drop whoever has it by then.
  if (connection.client != 0) return Error{.code = Code::kCorrupt, .detail = "two sessions on one connection"};
  connection.client = client;
  const auto [entry, is_new] = sessions_.try_emplace(connection.client, connection.fd());
  if (!is_new && entry->second != connection.fd()) {
    const int earlier = std::exchange(entry->second, connection.fd());
    drop(earlier, Error{.code = Code::kPeerLost, .detail = "the client has a new connection"});
  }
  TUTTI_TRY(connection.queue(frame.id, frame.kind, std::make_shared<const std::string>()));
  send(connection);
  return {};
}

Status StoreServerThread::obey(StoreConnection& connection, const wire::Frame& frame) {
  if (connection.fd() == follower_) return obey_follower(connection, frame);
  const bool is_new = frame.kind == std::uint8_t(wire::Kind::kSession);
  if (!takes_calls() || (is_new && in_doubt())) {
    TUTTI_TRY(connection.queue(frame.id, std::uint8_t(wire::Kind::kStandby), std::make_shared<const std::string>()));
    send(connection);
    return {};
  }
  if (is_new) return open_session(connection, frame);
  if (frame.kind == std::uint8_t(wire::Kind::kGoodbye)) {
    if (connection.client != 0) table_->forget(connection.client);
    return {};
  }
  const auto open = connection.open_calls.find(frame.id);
  if (frame.kind == std::uint8_t(wire::Kind::kProgress) || frame.kind == std::uint8_t(wire::Kind::kCancel)) {
    const bool cancel = frame.kind == std::uint8_t(wire::Kind::kCancel);
    Missing missing;
    if (open != connection.open_calls.end()) {
      missing = table_->missing(open->second);
      // A thread of this process may have answered a moment ago; then the answer is in the outbox and goes first.
      const bool crossed = cancel && !table_->withdraw(open->second);
      if (crossed) {
        deliver(table_->take_answers());
      } else if (cancel) {
        owners_.erase(open->second);
        connection.open_calls.erase(open);
      }
    }
    const auto kind = cancel ? wire::Kind::kCancelled : wire::Kind::kMissing;
    TUTTI_TRY(
        connection.queue(frame.id, std::uint8_t(kind), std::make_shared<const std::string>(wire::body_of(missing))));
    send(connection);
    return {};
  }
  StoreRequest request = TUTTI_TRY(wire::parse_request(frame));
  if (open != connection.open_calls.end()) return Error{.code = Code::kCorrupt, .detail = "two calls under one id"};
  if (connection.open_calls.size() >= kMaxOpenCalls)
    return Error{.code = Code::kLimit, .detail = "too many open calls"};
  calls_.fetch_add(1);
  const Table::Ticket ticket = table_->new_ticket();
  connection.open_calls.emplace(frame.id, ticket);
  owners_.emplace(ticket, Owner{connection.fd(), frame.id});
  deliver(table_->submit(ticket, std::move(request), {.client = connection.client, .number = frame.id}));
  return {};
}

void StoreServerThread::deliver(std::vector<Table::Answer> answers) {
  for (const auto& answer : answers) {
    const auto body = std::make_shared<const std::string>(wire::body_of(answer.reply));
    for (const Table::Ticket ticket : answer.tickets) {
      const auto owner = owners_.find(ticket);
      if (owner == owners_.end()) continue;  // its client has gone
      const auto [fd, id] = owner->second;
      owners_.erase(owner);
      StoreConnection& connection = *connections_.find(fd)->second;
      connection.open_calls.erase(id);
      if (const Status queued = connection.queue(id, wire::kind_of(answer.reply), body); !queued.ok())
        doomed_.emplace_back(fd, queued.error());
      send(connection);
    }
  }
}

// A failure shows again as a hang-up event, which ends the connection from on_ready().
void StoreServerThread::send(StoreConnection& connection) {
  (void)connection.flush().ok();
  if (connection.has_output() == connection.wants_write) return;
  connection.wants_write = connection.has_output();
  (void)loop_->modify(connection.fd(), EPOLLIN | (connection.wants_write ? std::uint32_t(EPOLLOUT) : 0U));
}

void StoreServerThread::drop(int fd, const Error& why) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  StoreConnection& connection = *found->second;
  if (const auto session = sessions_.find(connection.client); session != sessions_.end() && session->second == fd)
    sessions_.erase(session);
  if (why.code != Code::kPeerLost) {
    dropped_.fetch_add(1);
    log::warn("the store dropped " + connection.peer() + ": " + to_string(why));
  }
  for (const auto& [id, ticket] : connection.open_calls) {
    table_->withdraw(ticket);
    owners_.erase(ticket);
  }
  loop_->remove(fd);
  connections_.erase(found);
  if (fd == follower_) lose_follower(why);
}

}  // namespace tutti
