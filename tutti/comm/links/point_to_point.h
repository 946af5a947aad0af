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
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"
#include "tutti/transport/link.h"

namespace tutti::comm {

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

 private:
  struct Peer;
  class Send;
  class Recv;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::function<bool(int)> has_left_;
  int turn_ = 0;  // the rank that a receive from any source tries first
};

}  // namespace tutti::comm
