#pragma once
// send and recv of one group, over links that carry nothing else.
//
// Messages between two ranks keep their order per tag. A receive from any source takes the first that comes; while
// several ranks have something for it, they take turns. A receive takes the first message with its tag; a message that
// nobody has asked for stays in the link, so the sender feels it, until a receive of another tag from that peer has to
// get past it: then it is kept in memory, up to 64 MiB a peer (beyond: kLimit). Count and dtype must agree (kMismatch
// on the receiver, showing both calls). A send is done when its bytes were handed to the link: its buffer is free, and
// nothing is said about their arrival.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"
#include "tutti/transport/link.h"

namespace tutti {

// Threads: one at a time (the driver of the group), the operations included. Must outlive its operations.
class PointToPoint {
 public:
  // links[r] leads to rank r of the group; null for this rank. They must outlive this object. has_left: whether a rank
  // whose link has ended had left in good order; a receive from any source goes on without such a rank.
  explicit PointToPoint(std::span<Link* const> links, std::function<bool(int rank)> has_left = {});
  ~PointToPoint();
  PointToPoint(const PointToPoint&) = delete;

  // The operation of a kSend or kRecv request (request.root is the peer, or kAnySource). Queued from this call on:
  // sends to one peer, and receives of one tag, are carried out in the order in which they were made. `sequence` is for
  // error texts.
  std::unique_ptr<Operation> make_send(const Request& request, std::uint64_t sequence);
  std::unique_ptr<Operation> make_recv(const Request& request, std::uint64_t sequence);

 private:
  struct Peer;
  class Send;
  class Recv;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::function<bool(int)> has_left_;
  int turn_ = 0;  // of the receives from any source: the rank that is asked first
};

}  // namespace tutti
