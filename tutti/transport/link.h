#pragma once
// A Link carries bytes between two ranks: reliable, ordered, both ways, never blocking. One Link belongs to one group
// and one purpose (collectives, or send/recv), so nothing on it is multiplexed. Threads: one at a time (the driver of
// the group).
#include <poll.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti::transport {

class Link {
 public:
  virtual ~Link() = default;
  // Bytes taken from the buffers now; 0: would block. What was not taken is offered again before any other bytes.
  // kPeerLost once the peer is gone.
  virtual Result<std::size_t> try_send(std::span<const iovec> buffers) = 0;
  // Bytes stored into the buffers now; 0: nothing has come. kPeerLost once the peer is gone and all it sent was read.
  virtual Result<std::size_t> try_recv(std::span<const iovec> buffers) = 0;
  // Copies the first bytes that have arrived and were not received, which stay where they are; how many were copied.
  // For a caller that is blocked otherwise: it may cost as much as a receive.
  virtual std::size_t peek(std::span<std::byte> into) = 0;
  // The bytes that have arrived in memory that both ranks see, to be read there instead of received: as many as are
  // contiguous. Empty: nothing has arrived, or this link has no such memory. They stay until drop() is called for them.
  virtual std::span<const std::byte> front() { return {}; }
  virtual void drop(std::size_t) {}
  // A word in memory that both ranks see, zero at first: one for the messages that this rank sends, and one for those
  // of the peer. Null: this link has no such memory. After a change wake_peer() is called.
  enum class WordOf { kSent, kReceived };
  virtual std::atomic<std::uint64_t>* word(WordOf) { return nullptr; }
  virtual void wake_peer() {}
  // Ends the link in both directions, so that the peer learns at once that nothing more will come. Any thread. Where
  // the ranks share memory it does nothing: they learn of it there.
  virtual void shut() {}
  // The descriptor to poll while blocked, or -1 where the peer rings this rank's bell instead (shared memory).
  virtual int poll_fd() const = 0;
  // Adds what to poll for while neither sending nor receiving (as `events` says: POLLOUT, POLLIN or both) moved any
  // bytes. Only where poll_fd() is one.
  virtual void add_polls(short events, std::vector<pollfd>& polls) const { polls.push_back({poll_fd(), events, 0}); }
  // From now on POLLIN comes once this many bytes have arrived (or no more will): 1 is the default. A rank that waits
  // for many bytes is then woken for a good part of them, not for each packet. A link may wake earlier, and does for
  // more than it can hold.
  virtual void wake_at(std::size_t /*bytes*/) {}
  // Where there is no descriptor: when to check again for bytes that are on their way and will not ring on arrival.
  virtual std::optional<Duration> look_again() const { return {}; }
  // For error texts: "10.0.0.7:4123", "shm", "inproc".
  virtual std::string peer_address() const = 0;
};

}  // namespace tutti::transport
