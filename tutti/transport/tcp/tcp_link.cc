// One sendmsg or recvmsg a call, never blocking. Congestion control is chosen per socket: where the system's default is
// bbr, which paces even on loopback and inside a rack, cubic moves three times as much.
//
// A process that ends closes its connections, but a machine that loses power, or a cable, says nothing, and the kernel
// retransmits for a quarter of an hour. What a living machine always does, however busy or stopped the process is, is
// to acknowledge: data, keepalives, probes of a full window. So who is blocked looks once a second how long ago the
// last acknowledgement came. (TCP_USER_TIMEOUT is no such limit: it also ends a connection whose peer lets its window
// be full for that long.)
#include "tutti/transport/tcp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr Duration kLook = std::chrono::seconds(1);
constexpr Duration kLeastSilence = std::chrono::seconds(3);  // keepalives come once a second at most

class TcpLink final : public Link {
 public:
  TcpLink(Fd socket, std::string peer_address, Duration silence)
      : socket_(std::move(socket)), peer_address_(std::move(peer_address)), silence_(std::max(silence, kLeastSilence)) {
    // All are improvements only: a socket that is not TCP, or a system without cubic, carries the bytes all the same.
    const int on = 1, ask_after = std::max(1, int(to_seconds(silence_) / 3)), times = 9;
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &ask_after, sizeof ask_after);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, &ask_after, sizeof ask_after);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
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
  Result<std::size_t> failed(int code) {
    if (code == EAGAIN || code == EWOULDBLOCK || code == EINTR || code == ENOBUFS) {
      const auto time = now();
      if (time < look_again_) return std::size_t(0);
      look_again_ = time + kLook;
      tcp_info info{};
      socklen_t size = sizeof info;
      if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::size_t(0);
      const Duration silent = std::chrono::milliseconds(info.tcpi_last_ack_recv);
      if (silent <= silence_) return std::size_t(0);
      return Error{.code = Code::kPeerLost,
                   .detail = "has acknowledged nothing for " + seconds_text(to_seconds(silent)),
                   .hint = "its machine is down, or the network in between is cut; TUTTI_PEER_TIMEOUT sets the limit",
                   .address = peer_address_};
    }
    const char* what = code == ECONNRESET || code == EPIPE ? "broke the connection" : "can no longer be reached";
    return Error{.code = Code::kPeerLost, .detail = what, .address = peer_address_, .errno_value = code};
  }

  Fd socket_;
  std::string peer_address_;
  Duration silence_;
  Clock::time_point look_again_{};
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(Fd socket, std::string peer_address, Duration silence) {
  return std::make_unique<TcpLink>(std::move(socket), std::move(peer_address), silence);
}

}  // namespace tutti
