// One system call a call, never blocking. What is short goes through one array: gathering two buffers costs the kernel
// more than copying a cache line or two costs us.
//
// A rank that waits does not check all the time: a check takes the socket's lock, and while it is held the peer's
// packets queue up behind it. So after a look that found nothing the next one is a quarter of a microsecond later
// (measured between two network namespaces, pinned or not: an exchange of 8 bytes takes 5.3 us so, 5.9 without and with
// half of one).
//
// A process that ends closes its connections, but a machine that loses power, or a cable, says nothing, and the kernel
// retransmits for a quarter of an hour. What a living machine always does, however busy or stopped the process is, is
// to acknowledge: data, keepalives, probes of a full window. So a blocked link checks once a second how long ago the
// last acknowledgement came. (TCP_USER_TIMEOUT is no such limit: it also ends a connection whose peer lets its window
// be full for that long.)
#include "tutti/transport/tcp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tutti/base/text.h"

namespace tutti::transport {
namespace {

constexpr Duration kLook = std::chrono::seconds(1);  // at acknowledgements
constexpr Duration kBetweenLooks = std::chrono::nanoseconds(250);
constexpr std::size_t kShort = 512;                          // bytes
constexpr std::size_t kWorthWaking = 64 << 10;               // likewise
constexpr Duration kLeastSilence = std::chrono::seconds(3);  // keepalives come once a second at most

class TcpLink final : public Link {
 public:
  TcpLink(Fd socket, std::string peer_address, Duration silence)
      : socket_(std::move(socket)), peer_address_(std::move(peer_address)), silence_(std::max(silence, kLeastSilence)) {
    // All are improvements only: a socket that is not TCP carries the bytes all the same.
    const int on = 1, ask_after = std::max(1, int(to_seconds(silence_) / 3)), times = 9;
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &ask_after, sizeof ask_after);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, &ask_after, sizeof ask_after);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    (void)::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  Result<std::size_t> try_send(std::span<const iovec> buffers) override {
    if (is_too_early(send_again_)) return std::size_t(0);
    std::array<std::byte, kShort> together;
    const std::size_t bytes = total(buffers);
    ssize_t sent;
    if (buffers.size() > 1 && bytes <= together.size()) {
      std::size_t at = 0;
      for (const iovec& buffer : buffers) {
        std::copy_n(static_cast<const std::byte*>(buffer.iov_base), buffer.iov_len, together.data() + at);
        at += buffer.iov_len;
      }
      sent = ::send(socket_.get(), together.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(buffers.data());
      message.msg_iovlen = buffers.size();
      sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (sent >= 0) return std::size_t(sent);
    return failed(errno, send_again_);
  }

  Result<std::size_t> try_recv(std::span<const iovec> buffers) override {
    if (is_too_early(receive_again_)) return std::size_t(0);
    std::array<std::byte, kShort> together;
    const std::size_t bytes = total(buffers);
    ssize_t got;
    if (buffers.size() > 1 && bytes <= together.size()) {
      got = ::recv(socket_.get(), together.data(), bytes, MSG_DONTWAIT);
      std::size_t at = 0;
      for (const iovec& buffer : buffers) {
        if (got <= ssize_t(at)) break;
        const std::size_t part = std::min(buffer.iov_len, std::size_t(got) - at);
        std::copy_n(together.data() + at, part, static_cast<std::byte*>(buffer.iov_base));
        at += part;
      }
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(buffers.data());
      message.msg_iovlen = buffers.size();
      got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    }
    if (got > 0) return std::size_t(got);
    if (got < 0) return failed(errno, receive_again_);
    if (bytes > 0) return Error{.code = Code::kPeerLost, .detail = "closed the connection", .address = peer_address_};
    return std::size_t(0);  // nothing was asked for
  }

  std::size_t peek(std::span<std::byte> into) override {
    const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT | MSG_PEEK);
    return got > 0 ? std::size_t(got) : 0;
  }

  void wake_at(std::size_t bytes) override {
    const int least = int(std::clamp<std::size_t>(bytes, 1, kWorthWaking));
    if (least == wakes_at_) return;
    wakes_at_ = least;
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
  }

  void shut() override { (void)::shutdown(socket_.get(), SHUT_RDWR); }
  int poll_fd() const override { return socket_.get(); }
  std::string peer_address() const override { return peer_address_; }

 private:
  static std::size_t total(std::span<const iovec> buffers) {
    std::size_t bytes = 0;
    for (const iovec& buffer : buffers) bytes += buffer.iov_len;
    return bytes;
  }

  static bool is_too_early(Clock::time_point& again) {
    if (again == Clock::time_point{}) return false;
    if (now() < again) return true;
    again = {};
    return false;
  }

  // `again`: when the same may be tried again.
  Result<std::size_t> failed(int code, Clock::time_point& again) {
    if (code == EAGAIN || code == EWOULDBLOCK || code == EINTR || code == ENOBUFS) {
      const auto time = now();
      again = time + kBetweenLooks;
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
  Clock::time_point send_again_{}, receive_again_{};  // 0: at once
  int wakes_at_ = 1;                                  // bytes
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(Fd socket, std::string peer_address, Duration silence) {
  return std::make_unique<TcpLink>(std::move(socket), std::move(peer_address), silence);
}

}  // namespace tutti::transport
