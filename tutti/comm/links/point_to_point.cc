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
// A note is answered in a word that both ranks share (Link::word()). Whoever decides first decides: the receiver that
// has taken or declined the elements, or the sender that withdraws them because its call was cancelled. So a receiver
// never reports elements as received that the sender's program may have overwritten.
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

// What a word says of the message `number`, in its lowest bits.
enum class Answer : std::uint64_t { kNone, kTaken, kDeclined, kWithdrawn };

Answer answer_in(const std::atomic<std::uint64_t>& word, std::uint64_t number) {
  const std::uint64_t now = word.load(std::memory_order_acquire);
  return now >> 2 == number ? Answer(now & 3) : Answer::kNone;
}

// Decides, if nothing is decided yet. Returns what is.
Answer decide(std::atomic<std::uint64_t>& word, std::uint64_t number, Answer answer) {
  for (std::uint64_t now = word.load(std::memory_order_acquire); now >> 2 != number;)
    if (word.compare_exchange_weak(now, number << 2 | std::uint64_t(answer), std::memory_order_acq_rel)) return answer;
  return answer_in(word, number);
}

struct Message {
  CallHeader header;
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size() const { return header.count * size_of(header.dtype); }
};

}  // namespace

class PointToPoint::Send final : public NotedSend {
 public:
  Send(Peer& peer, const Request& request, std::uint64_t sequence, const Note* note = nullptr);
  ~Send() override;
  Result<Progress> step() override;
  void blockers(Blockers& blockers) const override;
  bool needs_elements() const override { return has_note && sends_elements && !elements; }
  void give(const void* given) override { elements = static_cast<const std::byte*>(given); }

  Peer& peer;
  const Request request;
  const std::uint64_t sequence;
  struct Head {
    CallHeader header;
    Note note;
  } head;
  const bool has_note;
  const std::size_t head_bytes = has_note ? sizeof(Head) : sizeof(CallHeader);
  bool sends_elements = !has_note;  // else once the note is declined
  const std::byte* elements;
  std::size_t moved = 0;  // bytes, including the head
  bool done = false;
  bool awaits_answer() const { return !sends_elements && moved == head_bytes; }
  std::size_t total() const { return head_bytes + request.count * size_of(request.dtype); }
};

class PointToPoint::Recv final : public NotedRecv {
 public:
  Recv(PointToPoint& all, std::vector<Peer*> from, const Request& request, std::uint64_t sequence, bool takes_notes);
  ~Recv() override;
  Result<Progress> step() override;
  void blockers(Blockers& blockers) const override;
  Arrived arrived() const override;
  const Note& note() const override;
  int sender() const override;
  Status take() override;
  Status decline() override;
  void put_into(void* memory) override;
  bool lacks_memory() const { return takes_notes && !out; }
  // Assigns the receive to `peer`: removes it from the lists of all other peers.
  void claim(Peer& peer);
  void finish(Peer& peer);

  PointToPoint& all;
  std::vector<Peer*> from;  // by rank: the peers that may send the message
  const Request request;
  const std::uint64_t sequence;
  const bool takes_notes;
  void* out;     // null: put_into() is still to come
  Message kept;  // that was in memory when it came
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
  Note note{};                                                      // of the message, if it begins with one
  bool is_declined = false;                                         // the note: the elements arrive
  std::size_t header_bytes = 0, note_bytes = 0, payload_bytes = 0;  // received so far
  Recv* target = nullptr;
  std::uint64_t messages_received = 0;

  bool header_came() const { return header_bytes == sizeof(CallHeader); }
  bool is_undecided() const { return coming.header.magic == CallHeader::kNoteMagic && !is_declined; }

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
  Result<bool> read_answer(Send& first, const Send& by);
  Result<bool> pull_note(const Recv& by);
  Status answer(Answer answer, const Recv& by);
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
  if (first.awaits_answer()) return read_answer(first, by);
  if (first.needs_elements()) return false;
  const std::size_t head_left = first.head_bytes - std::min(first.head_bytes, first.moved);
  const std::size_t sent_payload = first.moved - (first.head_bytes - head_left);
  iovec buffers[] = {{reinterpret_cast<std::byte*>(&first.head) + first.head_bytes - head_left, head_left},
                     {const_cast<std::byte*>(first.elements) + sent_payload,
                      first.sends_elements ? first.total() - first.moved - head_left : 0}};
  auto sent = link->try_send(std::span(buffers).subspan(head_left > 0 ? 0 : 1));
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

// A send without bytes to move learns from the link whether the peer is gone.
Result<bool> PointToPoint::Peer::read_answer(Send& first, const Send& by) {
  switch (answer_in(*link->word(transport::Link::WordOf::kSent), first.head.header.sequence)) {
    case Answer::kNone:
    case Answer::kWithdrawn:
      if (auto alive = link->try_send({}); !alive.ok()) return broken = fail(alive.error(), by.request, by.sequence);
      return false;
    case Answer::kTaken:
      first.done = true;
      sends.pop_front();
      return true;
    case Answer::kDeclined:
      first.sends_elements = true;
      return true;
  }
  return false;
}

// Receives arrived bytes, as far as a receive wants them. Returns whether anything moved.
Result<bool> PointToPoint::Peer::pull(const Recv& by) {
  if (!broken.ok()) return broken;
  std::byte* place = nullptr;
  if (header_came()) {
    if (Status chosen = choose_target(by); !chosen.ok()) return broken = chosen;
    if (is_undecided()) return pull_note(by);
    if (target && target->lacks_memory()) return false;
    place = target ? static_cast<std::byte*>(target->out) : coming.bytes.get();
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

// Receives the note. A receive that cannot take it, or memory, declines it.
Result<bool> PointToPoint::Peer::pull_note(const Recv& by) {
  std::size_t got = 0;
  if (note_bytes < note.size()) {
    const iovec buffer{note.data() + note_bytes, note.size() - note_bytes};
    auto result = link->try_recv({&buffer, 1});
    if (!result.ok()) return broken = fail(result.error(), by.request, by.sequence);
    got = *result;
    note_bytes += got;
    if (note_bytes < note.size()) return got > 0;
  }
  if (target && target->takes_notes) return got > 0;
  TUTTI_TRY(answer(Answer::kDeclined, by));
  return true;
}

Status PointToPoint::Peer::answer(Answer answer, const Recv& by) {
  if (!broken.ok()) return broken;
  const Answer decided = decide(*link->word(transport::Link::WordOf::kReceived), coming.header.sequence, answer);
  if (decided != answer)
    return broken = fail(Error{.code = Code::kAborted, .detail = "has cancelled the send of this message"}, by.request,
                         by.sequence);
  link->wake_peer();
  if (answer == Answer::kTaken)
    finish_message();
  else
    is_declined = true;
  return {};
}

Status PointToPoint::Peer::read_header(const Recv& by) {
  const CallHeader& header = coming.header;
  CallHeader expected = header;
  const bool is_noted = header.magic == CallHeader::kNoteMagic && link->word(transport::Link::WordOf::kReceived);
  expected.magic = is_noted ? CallHeader::kNoteMagic : CallHeader::kMagic;
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
  is_declined = false;
  header_bytes = note_bytes = payload_bytes = 0;
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
  kept_bytes -= at->size();
  recv.kept = std::move(*at);
  kept.erase(at);
  posted.remove(&recv);
  if (!recv.lacks_memory()) recv.put_into(recv.out);
}

std::string PointToPoint::Peer::kept_tags() const {
  std::set<std::int32_t> tags;
  for (const Message& message : kept) tags.insert(message.header.tag);
  const std::vector<int> list(tags.begin(), tags.end());
  return (list.size() == 1 ? "tag " : "tags ") + ranks_text(list);
}

PointToPoint::Send::Send(Peer& to, const Request& what, std::uint64_t number, const Note* note)
    : peer(to),
      request(what),
      sequence(number),
      has_note(note != nullptr),
      elements(note ? nullptr : static_cast<const std::byte*>(what.in)) {
  head.header = header_of(request, Algorithm::kDirect, ++peer.messages_sent, peer.rank);
  head.header.root = request.root;
  head.header.tag = request.tag;
  if (note) head.header.magic = CallHeader::kNoteMagic, head.note = *note;
  peer.sends.push_back(this);
}

PointToPoint::Send::~Send() {
  if (done) return;
  std::erase(peer.sends, this);
  if (awaits_answer()) {
    (void)decide(*peer.link->word(transport::Link::WordOf::kSent), head.header.sequence, Answer::kWithdrawn);
    peer.link->wake_peer();
  }
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

PointToPoint::Recv::Recv(PointToPoint& of, std::vector<Peer*> peers, const Request& what, std::uint64_t number,
                         bool notes)
    : all(of),
      from(std::move(peers)),
      request(what),
      sequence(number),
      takes_notes(notes),
      out(notes ? nullptr : what.out) {
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

NotedRecv::Arrived PointToPoint::Recv::arrived() const {
  if (done || !lacks_memory() || from.size() != 1) return Arrived::kNothing;
  if (kept.bytes) return Arrived::kElements;
  const Peer& peer = *from.front();
  if (peer.target != this || !peer.broken.ok()) return Arrived::kNothing;
  if (!peer.is_undecided()) return Arrived::kElements;
  return peer.note_bytes == peer.note.size() ? Arrived::kNote : Arrived::kNothing;
}

const Note& PointToPoint::Recv::note() const { return from.front()->note; }
int PointToPoint::Recv::sender() const { return from.front()->rank; }
Status PointToPoint::Recv::take() { return from.front()->answer(Answer::kTaken, *this); }
Status PointToPoint::Recv::decline() { return from.front()->answer(Answer::kDeclined, *this); }

void PointToPoint::Recv::put_into(void* memory) {
  out = memory;
  if (!kept.bytes) return;
  if (kept.size() > 0) std::memcpy(out, kept.bytes.get(), kept.size());
  kept.bytes.reset();
  finish(*from.front());
}

Result<Progress> PointToPoint::Recv::step() {
  if (done) return Progress::kDone;
  if (kept.bytes) return Progress::kBlocked;  // its memory is awaited
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

PointToPoint::Peer& PointToPoint::peer_of(const Request& request, std::uint64_t sequence) const {
  TUTTI_REQUIRE(request.root >= 0 && request.root < int(peers_.size()), call_text(request, sequence), ": there are ",
                peers_.size(), " ranks");
  return *peers_[std::size_t(request.root)];
}

std::unique_ptr<Operation> PointToPoint::make_send(const Request& request, std::uint64_t sequence) {
  return std::make_unique<Send>(peer_of(request, sequence), request, sequence);
}

bool PointToPoint::carries_notes_to(int peer) const {
  transport::Link* const link = peers_[std::size_t(peer)]->link;
  return link && link->word(transport::Link::WordOf::kSent);
}

std::unique_ptr<NotedSend> PointToPoint::make_noted_send(const Request& request, std::uint64_t sequence,
                                                         const Note& note) {
  return std::make_unique<Send>(peer_of(request, sequence), request, sequence, &note);
}

std::unique_ptr<Operation> PointToPoint::make_recv(const Request& request, std::uint64_t sequence) {
  return post(request, sequence, false);
}
std::unique_ptr<NotedRecv> PointToPoint::make_noted_recv(const Request& request, std::uint64_t sequence) {
  return post(request, sequence, true);
}

std::unique_ptr<PointToPoint::Recv> PointToPoint::post(const Request& request, std::uint64_t sequence,
                                                       bool takes_notes) {
  std::vector<Peer*> from;
  if (request.root == kAnySource) {
    for (const auto& peer : peers_)
      if (peer->link) from.push_back(peer.get());
  } else {
    from.push_back(&peer_of(request, sequence));
  }
  return std::make_unique<Recv>(*this, std::move(from), request, sequence, takes_notes);
}

}  // namespace tutti::comm
