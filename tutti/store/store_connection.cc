#include "tutti/store/server/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace tutti {
Status StoreConnection::queue(std::uint32_t id, std::uint8_t kind, Body body) {
  return queue(Chunk{.header = wire::header(id, kind, body->size()), .body = std::move(body)});
}

Status StoreConnection::queue_frame(Body frame) { return queue(Chunk{.header = {}, .body = std::move(frame)}); }

Status StoreConnection::queue(Chunk chunk) {
  if (output_bytes_ > output_limit)  // asked before this one: a single answer may be as large
    return Error{.code = Code::kLimit, .detail = "the client does not read its answers"};
  output_bytes_ += chunk.size();
  output_.push_back(std::move(chunk));
  return {};
}

Status StoreConnection::flush() {
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

}  // namespace tutti
