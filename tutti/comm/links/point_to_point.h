#pragma once
// send and recv of one group, over links that carry nothing else.
//
// Messages between two ranks keep their order per tag. A receive takes the first message with its tag. A receive from
// any source takes the first that arrives; if several ranks have a message for such receives, they take turns.
//
// A message without a matching receive stays in the link, so the sender is slowed down. If a receive of another tag
// waits behind it, the message is moved to memory, up to 64 MiB per peer (beyond that: kLimit). Count and dtype must
// agree (otherwise kMismatch on the receiver, with both calls). A send is done when its bytes have been passed to the
// link. Its buffer is then free, but the bytes may not have arrived.
//
// A message may begin with a note, from which the receiver can take the elements from the sender's memory itself. Only
// a receive that was made for it (NotedRecv) does so. All other receives, and messages that are moved to memory,
// decline the note, and the elements follow it on the link. Until the receiver has taken or declined a note, later
// messages of its sender wait.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"
#include "tutti/transport/link.h"

namespace tutti::comm {

// What a sender says about its memory; its meaning is that of the callers.
using Note = std::array<std::byte, 128>;

// The send of a message with a note. It ends when the receiver has taken the elements.
class NotedSend : public Operation {
 public:
  // The receiver has declined the note, and the elements are needed in memory of the host.
  virtual bool needs_elements() const = 0;
  // They stay there until the operation ends.
  virtual void give(const void* elements) = 0;
};

// A receive that may take the elements of a message itself. It has no memory of the host at first.
class NotedRecv : public Operation {
 public:
  enum class Arrived { kNothing, kNote, kElements };
  virtual Arrived arrived() const = 0;
  // After kNote: one of the two. An error: the send was cancelled, so the elements may have changed meanwhile.
  virtual const Note& note() const = 0;
  virtual int sender() const = 0;
  virtual Status take() = 0;     // the elements have been copied; the operation ends
  virtual Status decline() = 0;  // kElements is next
  // After kElements: they arrive there. The memory stays until the operation ends.
  virtual void put_into(void* out) = 0;
};

// Threads: one at a time (the driver of the group), including the operations. Must outlive its operations.
class PointToPoint {
 public:
  // links[r] connects to rank r of the group and is null for this rank. The links must outlive this object.
  // has_left(rank): whether a rank whose link has closed had left the group regularly. A receive from any source
  // continues without such a rank.
  explicit PointToPoint(std::span<transport::Link* const> links, std::function<bool(int rank)> has_left = {});
  ~PointToPoint();
  PointToPoint(const PointToPoint&) = delete;

  // Creates the operation of a kSend or kRecv request (request.root is the peer, or kAnySource) and queues it. Sends to
  // one peer, and receives of one tag, run in the order in which they were made. `sequence` is for error texts.
  std::unique_ptr<Operation> make_send(const Request& request, std::uint64_t sequence);
  std::unique_ptr<Operation> make_recv(const Request& request, std::uint64_t sequence);
  // Likewise, of messages that have elements; `in` and `out` of the request are not used. Whether a message to `peer`
  // can have a note: both ranks share memory.
  bool carries_notes_to(int peer) const;
  std::unique_ptr<NotedSend> make_noted_send(const Request& request, std::uint64_t sequence, const Note& note);
  std::unique_ptr<NotedRecv> make_noted_recv(const Request& request, std::uint64_t sequence);

 private:
  struct Peer;
  class Send;
  class Recv;
  Peer& peer_of(const Request& request, std::uint64_t sequence) const;
  std::unique_ptr<Recv> post(const Request& request, std::uint64_t sequence, bool takes_notes);
  std::vector<std::unique_ptr<Peer>> peers_;
  std::function<bool(int)> has_left_;
  int turn_ = 0;  // the rank that a receive from any source tries first
};

}  // namespace tutti::comm
