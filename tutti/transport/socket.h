#pragma once
// Stream sockets, with deadlines and errors that name the process that holds a port, or the reason for no answer.
#include <sys/socket.h>

#include <optional>
#include <span>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"
#include "tutti/transport/address.h"

namespace tutti::transport {

struct Listener {
  Fd fd;            // non-blocking, close-on-exec
  Address address;  // as bound: port 0 is replaced by the port that the system chose
};

// Binds exactly `address` (never the wildcard unless it is given). A port in use is kAddressInUse and names the process
// that holds it where /proc tells; an address that is not this machine's lists those that are. A Unix socket
// is born with mode 0600; a file that a killed program left there is replaced; its owner unlinks it at the end.
Result<Listener> listen(const Address& address, int backlog = 512);

// Connects to the first address of `address` that answers; retries refused connections with a growing, jittered pause
// until the deadline when `retry` is set; a line on the log every 5 s. The socket is non-blocking, close-on-exec and,
// for TCP, TCP_NODELAY with keep-alives. kUnreachable names the address, the time waited, and what to check.
Result<Fd> connect(const Address& address, Deadline deadline, bool retry = false);
// One waiting connection, with the same options; an invalid Fd where none waits. Over a Unix socket only processes of
// this user (or root) are let in.
Result<Fd> accept(const Listener& listener);

Address local_address(int fd);
Address peer_address(int fd);
// The process at the other end of a connected Unix socket, from the kernel; none where it does not tell.
std::optional<ucred> peer_process(int fd);
// Whether a Unix socket file of this user is left over: its process was killed, and nothing listens there.
bool is_abandoned_socket(const std::string& path);
// The process that listens at a TCP port, as far as /proc shows it to this user: "pid 1234 (python3 train.py)", "a
// process of user postgres", or empty.
std::string port_holder(const Address& address);

// All bytes, on a non-blocking socket. A closed connection is kPeerLost.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Status recv_all(int fd, std::span<std::byte> bytes, Deadline deadline);
// Waits until the descriptor can be read (or written); false when the deadline passed.
Result<bool> wait_readable(int fd, Deadline deadline);
Result<bool> wait_writable(int fd, Deadline deadline);

// A descriptor and some bytes over a connected Unix socket (SCM_RIGHTS).
Status send_fds(int socket, std::span<const int> fds, std::span<const std::byte> bytes, Deadline deadline);
struct Received {
  std::vector<Fd> fds;
  std::vector<std::byte> bytes;
};
Result<Received> recv_fds(int socket, std::size_t max_fds, std::size_t bytes, Deadline deadline);

}  // namespace tutti::transport
