// Two ranks share one link for all their sends and receives. So a message is a header (CallHeader, with a tag) followed
// by its bytes, and the state of both streams belongs to the pair, not to an operation. An operation is an entry in a
// queue of its peer. Whichever operation is stepped advances the stream for all of them.
//
// Sending is a queue whose first entry is on the link. Receiving reads a header and then decides. The oldest posted
// receive with the tag gets the bytes directly in its buffer. If there is none, the message goes to memory, because a
// receive of another tag waits behind it. With no receive posted nothing is read at all. A new receive first searches
// the messages in memory.
//
// A receive from any source is posted with every peer. The first peer that has a message for it claims it, and it is
// removed from the lists of the other peers. After each such message the search starts at the next rank; otherwise a
// peer that sends without pause could starve the others.
//
// A pair that has failed stays failed, because its streams may have stopped in the middle of a message.
#include "tutti/comm/links/point_to_point.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <set>

#include "tutti/base/text.h"
#include "tutti/comm/links/call_header.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kMostKept = 64 << 20;

struct Message {
  CallHeader header;
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size() const { return header.count * size_of(header.dtype); }
};

}  // namespace

class PointToPoint::Send final : public Operation {
 public:
  Send(Peer& peer, const Request& request, std::uint64_t sequence);
  ~Send() override;
  Result<Progress> step() override;
  void blockers(Blockers& blockers) const override;

  Peer& peer;
  const Request request;
  const std::uint64_t sequence;
  CallHeader header;
  std::size_t moved = 0;  // bytes, including the header
  bool done = false;
  std::size_t total() const { return sizeof header + request.count * size_of(request.dtype); }
};

class PointToPoint::Recv final : public Operation {
 public:
  Recv(PointToPoint& all, std::vector<Peer*> from, const Request& request, std::uint64_t sequence);
  ~Recv() override;
  Result<Progress> step() override;
  void blockers(Blockers& blockers) const override;
  // Assigns the receive to `peer`: removes it from the lists of all other peers.
  void claim(Peer& peer);
  void finish(Peer& peer);

  PointToPoint& all;
  std::vector<Peer*> from;  // by rank: the peers that may send the message
  const Request request;
  const std::uint64_t sequence;
  bool done = false;

 private:
  Result<bool> pull(Peer& peer);
  std::size_t first_asked() const;
};

struct PointToPoint::Peer {
  int rank;
  transport::Link* link;
  Status broken{};        // the first failure of the pair
  bool has_left = false;  // regularly; queried once the link has closed

  std::deque<Send*> sends{};
  std::uint64_t messages_sent = 0;

  std::list<Recv*> posted{};  // in the order in which they were made
  std::list<Message> kept{};  // complete messages without a receive
  std::size_t kept_bytes = 0;
  // The message that is being received: first its header, then its bytes, into a receive or into memory.
  Message coming{};
  std::size_t header_bytes = 0, payload_bytes = 0;  // received so far
  Recv* target = nullptr;
  std::uint64_t messages_received = 0;

  bool header_came() const { return header_bytes == sizeof(CallHeader); }

  Recv* first_posted(std::int32_t tag) const {
    const auto at =
        std::find_if(posted.begin(), posted.end(), [&](const Recv* recv) { return recv->request.tag == tag; });
    return at == posted.end() ? nullptr : *at;
  }

  Error fail(Error error, const Request& request, std::uint64_t sequence) const {
    error.peer = rank;
    error.address = link ? link->peer_address() : "";
    error.operation = call_text(request, sequence);
    return error;
  }

  void blockers(Blockers& blockers, short events) const {
    const bool is_coming = target != nullptr || coming.bytes != nullptr;
    if (link) blockers.add(rank, *link, events, is_coming ? coming.size() - payload_bytes : 1);
  }

  Result<bool> push(const Send& by);
  Result<bool> pull(const Recv& by);
  Status read_header(const Recv& by);
  Status choose_target(const Recv& by);
  Status check(const CallHeader& header, const Recv& recv) const;
  void finish_message();
  void take_kept(Recv& recv);
  std::string kept_tags() const;
};

// Advances the first send. Returns whether anything moved.
Result<bool> PointToPoint::Peer::push(const Send& by) {
  if (!broken.ok()) return broken;
  Send& first = *sends.front();
  const std::size_t header_left = sizeof first.header - std::min(sizeof first.header, first.moved);
  const std::size_t sent_payload = first.moved - (sizeof first.header - header_left);
  iovec buffers[] = {{reinterpret_cast<std::byte*>(&first.header) + sizeof first.header - header_left, header_left},
                     {static_cast<std::byte*>(const_cast<void*>(first.request.in)) + sent_payload,
                      first.total() - first.moved - header_left}};
  auto sent = link->try_send(std::span(buffers).subspan(header_left > 0 ? 0 : 1));
  if (!sent.ok()) {
    broken = fail(sent.error(), by.request, by.sequence);
    return broken;
  }
  first.moved += *sent;
  if (first.moved < first.total()) return *sent > 0;
  first.done = true;
  sends.pop_front();
  return true;
}

// Receives arrived bytes, as far as a receive wants them. Returns whether anything moved.
Result<bool> PointToPoint::Peer::pull(const Recv& by) {
  if (!broken.ok()) return broken;
  std::byte* place = nullptr;
  if (header_came()) {
    if (Status chosen = choose_target(by); !chosen.ok()) return broken = chosen;
    place = target ? static_cast<std::byte*>(target->request.out) : coming.bytes.get();
  }
  const iovec buffer = header_came() ? iovec{place + payload_bytes, coming.size() - payload_bytes}
                                     : iovec{reinterpret_cast<std::byte*>(&coming.header) + header_bytes,
                                             sizeof(CallHeader) - header_bytes};
  std::size_t got = 0;
  if (buffer.iov_len > 0) {
    auto result = link->try_recv({&buffer, 1});
    if (!result.ok()) return broken = fail(result.error(), by.request, by.sequence);
    got = *result;
    if (got == 0) return false;
  }
  if (!header_came()) {
    header_bytes += got;
    if (header_came()) {
      if (Status read = read_header(by); !read.ok()) return broken = read;
    }
    return true;
  }
  payload_bytes += got;
  if (payload_bytes == coming.size()) finish_message();
  return true;
}

Status PointToPoint::Peer::read_header(const Recv& by) {
  const CallHeader& header = coming.header;
  CallHeader expected = header;
  expected.magic = CallHeader::kMagic;
  expected.kind = Kind::kSend;
  expected.algorithm = Algorithm::kDirect;
  expected.sequence = messages_received + 1;
  if (auto mismatch = compare(header, expected, by.request, rank)) return fail(*mismatch, by.request, by.sequence);
  if (header.count > (std::uint64_t(1) << 56))
    return fail(Error{.code = Code::kCorrupt, .detail = "sent an impossible count"}, by.request, by.sequence);
  return {};
}

// A message and the receive that takes it must have the same type and count.
Status PointToPoint::Peer::check(const CallHeader& header, const Recv& recv) const {
  if (header.dtype == recv.request.dtype && header.count == recv.request.count) return {};
  const Request theirs{
      .kind = Kind::kSend, .dtype = header.dtype, .root = header.root, .tag = header.tag, .count = header.count};
  Error error{.code = Code::kMismatch,
              .detail = "called " + to_string(theirs) + ", this rank " + to_string(recv.request),
              .hint = "a receive needs the type and count that were sent"};
  return fail(std::move(error), recv.request, recv.sequence);
}

// Chooses the receive that gets the message, or memory if no receive has its tag. The choice is final.
Status PointToPoint::Peer::choose_target(const Recv& by) {
  if (target || coming.bytes) return {};
  const CallHeader& header = coming.header;
  target = first_posted(header.tag);
  if (target) {
    target->claim(*this);
    return check(header, *target);
  }
  kept_bytes += coming.size();
  if (kept_bytes > kMostKept) {
    kept.push_back({.header = header, .bytes = nullptr});
    return fail(
        Error{.code = Code::kLimit,
              .detail = "has sent " + bytes_text(kept_bytes) + " that this rank does not receive (" + kept_tags() +
                        ") ahead of the awaited message; at most " + bytes_text(kMostKept) + " are kept",
              .hint = "receive in the order in which it is sent, or post those receives too"},
        by.request, by.sequence);
  }
  coming.bytes = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(coming.size(), 1));
  return {};
}

void PointToPoint::Peer::finish_message() {
  ++messages_received;
  if (target) {
    target->finish(*this);
    target = nullptr;
  } else {
    kept.push_back(std::move(coming));
    // A receive for it may have been posted while it arrived.
    if (Recv* recv = first_posted(kept.back().header.tag)) take_kept(*recv);
  }
  coming = {};
  header_bytes = payload_bytes = 0;
}

// Gives the receive the oldest message in memory with its tag, if there is one.
void PointToPoint::Peer::take_kept(Recv& recv) {
  const auto at = std::find_if(kept.begin(), kept.end(),
                               [&](const Message& message) { return message.header.tag == recv.request.tag; });
  if (at == kept.end()) return;
  recv.claim(*this);
  if (Status same = check(at->header, recv); !same.ok()) {
    broken = same;
    return;
  }
  if (at->size() > 0) std::memcpy(recv.request.out, at->bytes.get(), at->size());
  kept_bytes -= at->size();
  kept.erase(at);
  recv.finish(*this);
}

std::string PointToPoint::Peer::kept_tags() const {
  std::set<std::int32_t> tags;
  for (const Message& message : kept) tags.insert(message.header.tag);
  const std::vector<int> list(tags.begin(), tags.end());
  return (list.size() == 1 ? "tag " : "tags ") + ranks_text(list);
}

PointToPoint::Send::Send(Peer& to, const Request& what, std::uint64_t number)
    : peer(to), request(what), sequence(number) {
  header = header_of(request, Algorithm::kDirect, ++peer.messages_sent, peer.rank);
  header.root = request.root;
  header.tag = request.tag;
  peer.sends.push_back(this);
}

PointToPoint::Send::~Send() {
  if (done) return;
  std::erase(peer.sends, this);
  if (moved > 0 && peer.broken.ok()) {
    peer.broken = peer.fail(
        Error{.code = Code::kAborted, .detail = "got only the beginning of this message: the send was cancelled"},
        request, sequence);
  }
}

Result<Progress> PointToPoint::Send::step() {
  if (done) return Progress::kDone;
  const bool any = TUTTI_TRY(peer.push(*this));
  return done ? Progress::kDone : any ? Progress::kMoved : Progress::kBlocked;
}

void PointToPoint::Send::blockers(Blockers& blockers) const { peer.blockers(blockers, POLLOUT); }

PointToPoint::Recv::Recv(PointToPoint& of, std::vector<Peer*> peers, const Request& what, std::uint64_t number)
    : all(of), from(std::move(peers)), request(what), sequence(number) {
  for (Peer* peer : from) peer->posted.push_back(this);
  const auto candidates = from;
  for (std::size_t i = 0, first = first_asked(); i < candidates.size() && from.size() == candidates.size() && !done;
       ++i)
    if (Peer& peer = *candidates[(first + i) % candidates.size()]; peer.broken.ok() || peer.has_left)
      peer.take_kept(*this);
}

PointToPoint::Recv::~Recv() {
  if (done) return;
  for (Peer* peer : from) {
    peer->posted.remove(this);
    if (peer->target != this) continue;
    peer->target = nullptr;
    if (peer->broken.ok()) {
      peer->broken =
          peer->fail(Error{.code = Code::kAborted, .detail = "sent only part of a message: the receive was cancelled"},
                     request, sequence);
    }
  }
}

void PointToPoint::Recv::claim(Peer& peer) {
  for (Peer* other : from)
    if (other != &peer) other->posted.remove(this);
  from = {&peer};
}

void PointToPoint::Recv::finish(Peer& peer) {
  peer.posted.remove(this);
  done = true;
  if (request.source) *request.source = peer.rank;
  if (request.root == kAnySource) all.turn_ = peer.rank + 1;
}

std::size_t PointToPoint::Recv::first_asked() const {
  const auto at = std::find_if(from.begin(), from.end(), [&](const Peer* peer) { return peer->rank >= all.turn_; });
  return at == from.end() ? 0 : std::size_t(at - from.begin());
}

Result<Progress> PointToPoint::Recv::step() {
  if (done) return Progress::kDone;
  if (from.size() == 1) {
    const bool moved = TUTTI_TRY(pull(*from.front()));
    return done ? Progress::kDone : moved ? Progress::kMoved : Progress::kBlocked;
  }
  const auto asked = from;
  bool any = false;
  for (std::size_t i = 0, first = first_asked(); i < asked.size(); ++i) {
    Peer& peer = *asked[(first + i) % asked.size()];
    if (std::find(from.begin(), from.end(), &peer) == from.end()) continue;  // another peer has claimed it
    any |= TUTTI_TRY(pull(peer));
    if (done) return Progress::kDone;
  }
  return any ? Progress::kMoved : Progress::kBlocked;
}

// Like Peer::pull(), but if the peer has left regularly the receive waits for the remaining peers.
Result<bool> PointToPoint::Recv::pull(Peer& peer) {
  auto moved = peer.pull(*this);
  if (moved.ok() || request.root != kAnySource || peer.target == this || moved.error().code != Code::kPeerLost)
    return moved;
  if (!peer.has_left && all.has_left_) peer.has_left = all.has_left_(peer.rank);
  if (!peer.has_left) return moved;
  if (from.size() == 1) {
    Error error = peer.fail(Error{.code = Code::kPeerLost,
                                  .detail = "was the last that could have sent, and has left",
                                  .hint = "do the ranks send as many messages as are received?"},
                            request, sequence);
    return error;
  }
  std::erase(from, &peer);
  peer.posted.remove(this);
  return true;
}

void PointToPoint::Recv::blockers(Blockers& blockers) const {
  for (const Peer* peer : from) peer->blockers(blockers, POLLIN);
}

PointToPoint::PointToPoint(std::span<transport::Link* const> links, std::function<bool(int)> has_left)
    : has_left_(std::move(has_left)) {
  for (int rank = 0; rank < int(links.size()); ++rank) {
    peers_.push_back(std::make_unique<Peer>(Peer{.rank = rank, .link = links[rank]}));
    if (!links[rank]) {
      peers_.back()->broken =
          invalid_argument("rank " + std::to_string(rank) + " cannot be sent to or received from: it has no link",
                           "a rank copies to itself, it does not send");
    }
  }
}

PointToPoint::~PointToPoint() = default;

std::unique_ptr<Operation> PointToPoint::make_send(const Request& request, std::uint64_t sequence) {
  TUTTI_REQUIRE(request.root >= 0 && request.root < int(peers_.size()), call_text(request, sequence), ": there are ",
                peers_.size(), " ranks");
  return std::make_unique<Send>(*peers_[request.root], request, sequence);
}

std::unique_ptr<Operation> PointToPoint::make_recv(const Request& request, std::uint64_t sequence) {
  std::vector<Peer*> from;
  if (request.root == kAnySource) {
    for (const auto& peer : peers_)
      if (peer->link) from.push_back(peer.get());
  } else {
    TUTTI_REQUIRE(request.root >= 0 && request.root < int(peers_.size()), call_text(request, sequence), ": there are ",
                  peers_.size(), " ranks");
    from.push_back(peers_[request.root].get());
  }
  return std::make_unique<Recv>(*this, std::move(from), request, sequence);
}

}  // namespace tutti::comm
