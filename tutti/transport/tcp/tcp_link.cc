// One sendmsg or recvmsg a call, never blocking. Congestion control is chosen per socket: where the system's default is
// bbr, which paces even on loopback and inside a rack, cubic moves three times as much.
#include "tutti/transport/tcp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

namespace tutti {
namespace {

class TcpLink final : public Link {
 public:
  TcpLink(Fd socket, std::string peer_address) : socket_(std::move(socket)), peer_address_(std::move(peer_address)) {
    // Both are improvements only: a socket that is not TCP, or a system without cubic, carries the bytes all the same.
    const int on = 1;
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  }

  Result<std::size_t> try_send(std::span<const iovec> buffers) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(buffers.data());
    message.msg_iovlen = buffers.size();
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return std::size_t(sent);
    return failed(errno);
  }

  Result<std::size_t> try_recv(std::span<const iovec> buffers) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(buffers.data());
    message.msg_iovlen = buffers.size();
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got > 0) return std::size_t(got);
    if (got < 0) return failed(errno);
    for (const iovec& buffer : buffers) {
      if (buffer.iov_len > 0)
        return Error{.code = Code::kPeerLost, .detail = "closed the connection", .address = peer_address_};
    }
    return std::size_t(0);  // nothing was asked for
  }

  std::size_t peek(std::span<std::byte> into) override {
    const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT | MSG_PEEK);
    return got > 0 ? std::size_t(got) : 0;
  }

  void shut() override { (void)::shutdown(socket_.get(), SHUT_RDWR); }
  int poll_fd() const override { return socket_.get(); }
  std::string peer_address() const override { return peer_address_; }

 private:
  Result<std::size_t> failed(int code) const {
    if (code == EAGAIN || code == EWOULDBLOCK || code == EINTR || code == ENOBUFS) return std::size_t(0);
    const char* what = code == ECONNRESET || code == EPIPE ? "broke the connection" : "can no longer be reached";
    return Error{.code = Code::kPeerLost, .detail = what, .address = peer_address_, .errno_value = code};
  }

  Fd socket_;
  std::string peer_address_;
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(Fd socket, std::string peer_address) {
  return std::make_unique<TcpLink>(std::move(socket), std::move(peer_address));
}

}  // namespace tutti
