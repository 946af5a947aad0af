// A connection that opens a session replaces an earlier one of the same client, which is only not known to be lost yet:
// the open calls of the earlier one are withdrawn before the client repeats them.
#include "tutti/store/server/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/log.h"
#include "tutti/store/server/replication.h"
#include "tutti/transport/socket.h"

namespace tutti::store {
namespace {

constexpr std::size_t kMaxOpenCalls = 1024;  // of one client

}  // namespace

// ---- one connection ----

Status Connection::queue(std::uint32_t id, std::uint8_t kind, Body body) {
  return queue(Chunk{.header = wire::header(id, kind, body->size()), .body = std::move(body)});
}

Status Connection::queue(wire::Kind kind, std::string body) {
  return queue(0, std::uint8_t(kind), std::make_shared<const std::string>(std::move(body)));
}

Status Connection::queue_frame(std::string frame) {
  return queue(Chunk{.header = {}, .body = std::make_shared<const std::string>(std::move(frame))});
}

Status Connection::queue(Chunk chunk) {
  if (output_bytes_ > output_limit)  // asked before this one: a single answer may be as large
    return Error{.code = Code::kLimit, .detail = "the client does not read its answers"};
  output_bytes_ += chunk.size();
  output_.push_back(std::move(chunk));
  return {};
}

Status Connection::flush() {
  while (!output_.empty()) {
    Chunk& chunk = output_.front();
    iovec parts[2];
    int count = 0;
    std::size_t skip = chunk.sent;
    for (const std::string* part : {static_cast<const std::string*>(&chunk.header), chunk.body.get()}) {
      if (skip < part->size()) parts[count++] = {const_cast<char*>(part->data()) + skip, part->size() - skip};
      skip -= std::min(skip, part->size());
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = std::size_t(count);
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return {};
      return Error{.code = Code::kPeerLost, .detail = "the client closed the connection"};
    }
    chunk.sent += std::size_t(sent);
    if (chunk.sent < chunk.size()) continue;
    output_bytes_ -= chunk.size();
    output_.pop_front();
  }
  return {};
}

// ---- all of them ----

void Clients::add(Fd fd, const transport::Hello& hello, const std::string& peer) {
  const int number = fd.get();
  auto connection = std::make_unique<Connection>(
      std::move(fd), (hello.rank < 0 ? "" : "rank " + std::to_string(hello.rank) + " at ") + peer);
  if (!loop_.add(number, EPOLLIN, [this, number](std::uint32_t events) { on_ready(number, events); }).ok()) return;
  Connection& kept = *connections_.emplace(number, std::move(connection)).first->second;
  if (hello.channel == wire::kStandbyChannel) replication_.adopt_standby(kept);
}

void Clients::on_ready(int fd, std::uint32_t events) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  if (events & EPOLLOUT) send(connection);
  if (events & ~std::uint32_t(EPOLLOUT)) {
    const Status served = read(connection);
    if (!served.ok()) drop_later(fd, served.error());
  }
}

// One read per event: level-triggered epoll comes back for the rest, after the other connections had their turn.
Status Clients::read(Connection& connection) {
  if (!TUTTI_TRY(connection.reader().read(connection.fd()))) return {};
  while (const auto frame = TUTTI_TRY(connection.reader().next())) TUTTI_TRY(obey(connection, *frame));
  return {};
}

Status Clients::obey(Connection& connection, const wire::Frame& frame) {
  if (replication_.is_standby(connection)) return replication_.obey_standby(frame);
  const auto is = [&](wire::Kind kind) { return frame.kind == std::uint8_t(kind); };
  const bool is_new = is(wire::Kind::kSession);
  if (!replication_.takes_calls() || (is_new && replication_.in_doubt())) {
    TUTTI_TRY(connection.queue(frame.id, std::uint8_t(wire::Kind::kStandby), std::make_shared<const std::string>()));
    send(connection);
    return {};
  }
  if (is_new) return open_session(connection, frame);
  if (is(wire::Kind::kGoodbye)) {
    if (connection.client != 0) table_.forget(connection.client);
    return {};
  }
  if (is(wire::Kind::kProgress) || is(wire::Kind::kCancel)) return answer_about_call(connection, frame);
  return submit(connection, frame);
}

Status Clients::open_session(Connection& connection, const wire::Frame& frame) {
  const std::uint64_t client = TUTTI_TRY(wire::parse_client(frame));
  // Else sessions_ would keep this descriptor under the first client, and drop the connection that has it by then.
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

// Progress: what the call still waits for. Cancel: the same, and the call waits no more.
Status Clients::answer_about_call(Connection& connection, const wire::Frame& frame) {
  const bool cancel = frame.kind == std::uint8_t(wire::Kind::kCancel);
  Missing missing;
  if (const auto open = connection.open_calls.find(frame.id); open != connection.open_calls.end()) {
    missing = table_.missing(open->second);
    // A thread of this process may have answered a moment ago; then the answer is in the outbox and goes first.
    const bool crossed = cancel && !table_.withdraw(open->second);
    if (crossed) {
      deliver(table_.take_answers());
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

Status Clients::submit(Connection& connection, const wire::Frame& frame) {
  Request request = TUTTI_TRY(wire::parse_request(frame));
  if (connection.open_calls.contains(frame.id))
    return Error{.code = Code::kCorrupt, .detail = "two calls under one id"};
  if (connection.open_calls.size() >= kMaxOpenCalls)
    return Error{.code = Code::kLimit, .detail = "too many open calls"};
  calls_.fetch_add(1);
  const Table::Ticket ticket = table_.new_ticket();
  connection.open_calls.emplace(frame.id, ticket);
  owners_.emplace(ticket, Owner{connection.fd(), frame.id});
  deliver(table_.submit(ticket, std::move(request), {.client = connection.client, .number = frame.id}));
  return {};
}

void Clients::deliver(const std::vector<Table::Answer>& answers) {
  for (const auto& answer : answers) {
    const auto body = std::make_shared<const std::string>(wire::body_of(answer.reply));
    for (const Table::Ticket ticket : answer.tickets) {
      const auto owner = owners_.find(ticket);
      if (owner == owners_.end()) continue;  // its client has gone
      const auto [fd, id] = owner->second;
      owners_.erase(owner);
      Connection& connection = *connections_.find(fd)->second;
      connection.open_calls.erase(id);
      if (const Status queued = connection.queue(id, wire::kind_of(answer.reply), body); !queued.ok())
        drop_later(fd, queued.error());
      send(connection);
    }
  }
}

// A failure shows again as a hang-up event, which ends the connection from on_ready().
void Clients::send(Connection& connection) {
  (void)connection.flush().ok();
  if (connection.has_output() == connection.wants_write) return;
  connection.wants_write = connection.has_output();
  (void)loop_.modify(connection.fd(), EPOLLIN | (connection.wants_write ? std::uint32_t(EPOLLOUT) : 0U));
}

void Clients::drop(int fd, const Error& why) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  if (const auto session = sessions_.find(connection.client); session != sessions_.end() && session->second == fd)
    sessions_.erase(session);
  if (why.code != Code::kPeerLost) {
    dropped_.fetch_add(1);
    log::warn("the store dropped " + connection.peer() + ": " + to_string(why));
  }
  for (const auto& [id, ticket] : connection.open_calls) {
    table_.withdraw(ticket);
    owners_.erase(ticket);
  }
  const bool was_standby = replication_.is_standby(connection);
  loop_.remove(fd);
  connections_.erase(found);
  if (was_standby) replication_.lose_standby(why);
}

void Clients::drop_all_later(const Error& why) {
  for (const auto& [fd, connection] : connections_) drop_later(fd, why);
}

void Clients::drop_marked() {
  for (const auto& [fd, why] : std::exchange(marked_, {})) drop(fd, why);
}

void Clients::flush_all(Deadline deadline) {
  for (auto& [fd, connection] : connections_) {
    while (connection->has_output()) {
      if (!connection->flush().ok()) break;
      const auto writable = connection->has_output() ? transport::wait_writable(fd, deadline) : Result<bool>(true);
      if (!writable.ok() || !*writable) break;
    }
  }
}

}  // namespace tutti::store
