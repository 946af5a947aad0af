#pragma once
// A Link carries bytes between two ranks: reliable, ordered, both ways, never blocking. One Link belongs to one group
// and one purpose (collectives, or send/recv), so nothing on it is multiplexed. Threads: one at a time (the driver of
// the group).
#include <poll.h>
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti {

class Link {
 public:
  virtual ~Link() = default;
  // Bytes taken from the buffers now; 0: would block. What was not taken is offered again before any other bytes.
  // kPeerLost once the peer is gone.
  virtual Result<std::size_t> try_send(std::span<const iovec> buffers) = 0;
  // Bytes stored into the buffers now; 0: nothing has come. kPeerLost once the peer is gone and all it sent was read.
  virtual Result<std::size_t> try_recv(std::span<const iovec> buffers) = 0;
  // The first bytes that have come and were not received, which stay where they are: how many were copied. For who is
  // blocked otherwise: it may cost as much as a receive.
  virtual std::size_t peek(std::span<std::byte> into) = 0;
  // What has come and lies in memory that both ranks see, to be read there instead of received: as many bytes as lie
  // together. None: nothing has come, or this link has no such memory. They stay until so many are dropped.
  virtual std::span<const std::byte> front() { return {}; }
  virtual void drop(std::size_t) {}
  // Ends the link in both directions, so that the peer learns at once that nothing more will come. Any thread. Where
  // the ranks share memory it does nothing: they learn of it there.
  virtual void shut() {}
  // The descriptor to poll while blocked, or -1 where the peer rings this rank's bell instead (shared memory).
  virtual int poll_fd() const = 0;
  // What to poll for while neither sending nor receiving (or that one of them which `events`, POLLOUT or POLLIN or
  // both, says) moved anything. Only where poll_fd() is one.
  virtual void add_polls(short events, std::vector<pollfd>& polls) const { polls.push_back({poll_fd(), events, 0}); }
  // From now on POLLIN comes once so many bytes have (or nothing more will): 1 is the default. Who waits for many is
  // then woken for a good part of them, not for each packet. A link may wake earlier, and does for more than it can
  // hold.
  virtual void wake_at(std::size_t /*bytes*/) {}
  // Where there is none: when to look again for bytes that are on their way, though nobody rings when they arrive.
  virtual std::optional<Duration> look_again() const { return {}; }
  // For error texts: "10.0.0.7:4123", "shm", "inproc".
  virtual std::string peer_address() const = 0;
};

}  // namespace tutti
