// Bytes and descriptors through a non-blocking socket until a deadline.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tutti/transport/socket.h"

namespace tutti::transport {
namespace {

Result<bool> wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return true;  // an error or hang-up counts: the call that follows will tell
    if (ready < 0 && errno != EINTR) return system_error(errno, "cannot wait for a connection");
    if (ready == 0 && deadline.expired()) return false;
  }
}

// Empty once the connection was reset: the kernel has forgotten it.
std::string peer_text(int fd) {
  const Address address = peer_address(fd);
  return address == Address{} ? std::string() : to_string(address);
}

Error lost(int fd, int errno_value) {
  return Error{.code = Code::kPeerLost,
               .detail = "the other side closed the connection",
               .address = peer_text(fd),
               .errno_value = errno_value == ECONNRESET || errno_value == EPIPE ? 0 : errno_value};
}

Error late(int fd, Deadline deadline, const std::string& what) {
  Error error = deadline.error(what);
  error.address = peer_text(fd);
  return error;
}

}  // namespace

Result<bool> wait_readable(int fd, Deadline deadline) { return wait_for(fd, POLLIN, deadline); }
Result<bool> wait_writable(int fd, Deadline deadline) { return wait_for(fd, POLLOUT, deadline); }

Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(std::size_t(sent));
    } else if (errno == EAGAIN) {
      if (!TUTTI_TRY(wait_writable(fd, deadline)))
        return late(fd, deadline,
                    "the other side does not read: " + std::to_string(bytes.size()) + " bytes are left to send");
    } else if (errno != EINTR) {
      return lost(fd, errno);
    }
  }
  return {};
}

Status recv_all(int fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(std::size_t(got));
    } else if (got == 0) {
      return lost(fd, 0);
    } else if (errno == EAGAIN) {
      if (!TUTTI_TRY(wait_readable(fd, deadline)))
        return late(fd, deadline, "the other side is silent: " + std::to_string(bytes.size()) + " bytes are awaited");
    } else if (errno != EINTR) {
      return lost(fd, errno);
    }
  }
  return {};
}

Status send_fds(int socket, std::span<const int> fds, std::span<const std::byte> bytes, Deadline deadline) {
  if (bytes.empty()) return invalid_argument("descriptors are sent with at least one byte");
  std::vector<std::byte> control(CMSG_SPACE(fds.size_bytes()));
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (true) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent >= 0)
      return send_all(socket, bytes.subspan(std::size_t(sent)), deadline);  // the descriptors went with the first part
    if (errno == EAGAIN) {
      if (!TUTTI_TRY(wait_writable(socket, deadline))) return late(socket, deadline, "the other side does not read");
    } else if (errno != EINTR) {
      if (errno == EPIPE || errno == ECONNRESET) return lost(socket, errno);
      return system_error(errno, "cannot pass " + std::to_string(fds.size()) + " descriptors");
    }
  }
}

Result<Received> recv_fds(int socket, std::size_t max_fds, std::size_t bytes, Deadline deadline) {
  Received received;
  received.bytes.resize(bytes);
  std::vector<std::byte> control(CMSG_SPACE(max_fds * sizeof(int)));
  std::size_t have = 0;
  while (have < bytes) {
    iovec part{received.bytes.data() + have, bytes - have};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got == 0) return lost(socket, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return lost(socket, errno);
      if (!TUTTI_TRY(wait_readable(socket, deadline))) return late(socket, deadline, "the other side is silent");
      continue;
    }
    have += std::size_t(got);
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        received.fds.emplace_back(fd);
      }
    }
    if (message.msg_flags & MSG_CTRUNC || received.fds.size() > max_fds)
      return Error{
          .code = Code::kLimit,
          .detail = "more than " + std::to_string(max_fds) + " descriptors arrived, or this process may not open more",
          .hint = "raise the limit of open files (ulimit -n)"};
  }
  return received;
}

}  // namespace tutti::transport
