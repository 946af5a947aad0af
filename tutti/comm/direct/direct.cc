// Ranks of one host share memory, so a collective needs no messages: the ranks meet, read and write one another's
// buffers, and meet again. Three ways, chosen from the call alone, so that all ranks choose alike:
//
//   inline    up to 112 bytes from each rank ride in the flag line itself: one meeting, one or two cache
//             misses a peer
//   one-shot  up to 2 KiB: each rank copies its bytes into a slot, meets, and reads everybody's
//   large     each rank says where its buffers are (they need not be at the same place), meets, and then, if all that
//             matters lies in arenas, *direct*: rank r adds slice r of all inputs, in rank order, and stores it to all
//             outputs, which moves 2 bytes per byte; a second meeting ends it. Otherwise *staged* (staged.cc).
//
// The order of every sum is the rank order, whatever the way, so all ranks and all runs get the same bits.
//
// Calls are compared at the first meeting by a 16-bit fingerprint in the word that everybody reads anyway, and, for
// large ones, field by field. Who finds a difference tells its call in its CallRecord, reads the peer's, and says both.
#include "tutti/comm/direct/direct.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/comm/direct/small.h"
#include "tutti/comm/direct/staged.h"
#include "tutti/comm/executor.h"
#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/reduce.h"

namespace tutti {
namespace {

constexpr Duration kComparePatience = std::chrono::seconds(1);

// What does not tell one call from another is made equal.
Request canonical(Request r) {
  if (!is_reduction(r.kind)) r.op = ReduceOp::kSum;
  if (!has_root(r.kind)) r.root = 0;
  if (r.kind == Kind::kBroadcast) r.in = r.out;  // one buffer
  if (r.kind == Kind::kBarrier) r.dtype = DType::kU8, r.count = 0;
  return r;
}

}  // namespace

DirectOperation::DirectOperation(DirectChannel& channel, const Request& request, std::uint64_t sequence,
                                 std::uint64_t word)
    : channel_(channel),
      request_(canonical(request)),
      sequence_(sequence),
      word_(word),
      element_(size_of(request.dtype)),
      fingerprint_(fingerprint_of(request)),
      stage_(word == 0 ? Stage::kEnter : Stage::kMeet) {
  const std::size_t bytes = contributed(request_, channel.size());
  way_ = bytes <= kInlineBytes ? Way::kInline : bytes <= kOneShotBytes ? Way::kOneShot : Way::kLarge;
  if (!request_.in_splits.empty()) way_ = Way::kLarge;  // ranks may give different amounts
}

DirectOperation::~DirectOperation() = default;

void DirectOperation::post(const void* payload, std::size_t bytes) {
  word_ = channel_.post(fingerprint_, payload, bytes);
  next_ = 0;
}

bool DirectOperation::awaits_this_core() const { return channel_.awaits_this_core(word_, next_); }

// Tells this rank's call, and waits for the peer, which finds the difference at the same tick, to tell its own.
Result<Progress> DirectOperation::compare_with(int peer) {
  CallRecord& mine = channel_.control().record(channel_.rank());
  mine.sequence.store(sequence_, std::memory_order_relaxed);
  mine.count.store(request_.count, std::memory_order_relaxed);
  mine.shape.store(pack_shape(request_), std::memory_order_relaxed);
  mine.word.store(word_, std::memory_order_release);
  channel_.ring_peers();
  next_ = peer;
  compared_since_ = now();
  stage_ = Stage::kCompare;
  return Progress::kMoved;
}

Result<Progress> DirectOperation::compare() {
  const CallRecord& record = channel_.control().record(next_);
  Error error{.code = Code::kMismatch,
              .hint = "all ranks of a group must make the same calls in the same order",
              .peer = next_};
  if (DirectChannel::tick_of(record.word.load(std::memory_order_acquire)) == DirectChannel::tick_of(word_)) {
    const Request theirs =
        unpack_shape(record.shape.load(std::memory_order_relaxed), record.count.load(std::memory_order_relaxed));
    error.detail = "called " + call_text(theirs, record.sequence.load(std::memory_order_relaxed)) +
                   " while this rank called " + call_text(request_, sequence_);
    return error;
  }
  if (now() - compared_since_ < kComparePatience) return Progress::kBlocked;
  error.detail = "made another call while this rank called " + call_text(request_, sequence_);
  return error;
}

void DirectOperation::blockers(Blockers& blockers) const {
  blockers.needs_bell = true;
  if (stage_ == Stage::kCompare) {
    blockers.ranks.push_back(next_);
    return;
  }
  const std::uint64_t tick = DirectChannel::tick_of(word_);
  for (int r = 0; r < channel_.size(); ++r)
    if (DirectChannel::tick_of(channel_.lines(tick)[r].word.load(std::memory_order_acquire)) != tick)
      blockers.ranks.push_back(r);
}

Result<Progress> DirectOperation::step() {
  switch (stage_) {
    case Stage::kEnter:
      return enter();
    case Stage::kCompare:
      return compare();
    case Stage::kMeet:
    case Stage::kLeave:
    case Stage::kStaged:
      break;
  }
  if (stage_ == Stage::kStaged) staged_->prepare();
  switch (channel_.meet(word_, next_)) {
    case DirectChannel::Meeting::kIncomplete:
      return Progress::kBlocked;
    case DirectChannel::Meeting::kDifferent:
      return compare_with(next_);
    case DirectChannel::Meeting::kComplete:
      break;
  }
  channel_.spread_now_and_then();
  if (stage_ == Stage::kLeave) return Progress::kDone;
  return stage_ == Stage::kMeet ? after_meeting() : after_piece();
}

// Iteration k of the pipeline: piece k was copied in before the meeting, piece k - 1 is combined, piece k - 2 copied
// out.
Result<Progress> DirectOperation::after_piece() {
  StagedTransfer& s = *staged_;
  s.waiting = false;
  const std::size_t k = s.iteration++;
  if (k >= 1 && k - 1 < s.pieces()) s.combine(k - 1);
  if (k < s.pieces() + 1) post(nullptr, 0);
  if (k >= 2) s.copy_out(k - 2);
  return k == s.pieces() + 1 ? Progress::kDone : Progress::kMoved;
}

Result<Progress> DirectOperation::enter() {
  DirectChannel& c = channel_;
  stage_ = Stage::kMeet;
  const bool gives = tutti::gives(request_, c.rank());
  const std::size_t bytes = contributed(request_, c.size());
  switch (way_) {
    case Way::kInline:
      post(request_.in, gives ? bytes : 0);
      break;
    case Way::kOneShot: {
      if (gives) std::memcpy(c.one_shot(c.tick() + 1, c.rank()), request_.in, bytes);
      post(nullptr, 0);
      break;
    }
    case Way::kLarge: {
      const std::size_t n = std::size_t(c.size()), vector = request_.count * element_;
      Descriptor mine{.slots = TUTTI_TRY(c.slots()), .count = request_.count, .shape = pack_shape(request_)};
      if (!request_.in_splits.empty()) {
        std::uint64_t* const splits = c.control().splits(c.rank());
        for (std::size_t r = 0; r < n; ++r) {
          splits[r] = request_.in_splits[r];
          mine.largest_split = std::max(mine.largest_split, splits[r]);
        }
        mine.in = c.place_of(request_.in, 1);
      } else {
        mine.in = c.place_of(request_.in, gives_parts(request_.kind) ? n * vector : vector);
        mine.out = c.place_of(request_.out, vector);
      }
      if (request_.kind == Kind::kAllToAll && request_.in == request_.out)
        mine.in = 0;  // peers would read what was overwritten
      post(&mine, sizeof mine);
      break;
    }
  }
  return Progress::kMoved;
}

Result<Progress> DirectOperation::after_meeting() {
  DirectChannel& c = channel_;
  const std::uint64_t tick = DirectChannel::tick_of(word_);
  const CallLine* lines = c.lines(tick);
  if (way_ != Way::kLarge) {
    std::vector<const void*> parts(c.size());
    for (int r = 0; r < c.size(); ++r)
      parts[r] = way_ == Way::kInline ? static_cast<const void*>(lines[r].payload) : c.one_shot(tick, r);
    finish_small(request_, c.rank(), c.size(), parts.data());
    return Progress::kDone;
  }
  std::vector<Descriptor> theirs(c.size());
  for (int r = 0; r < c.size(); ++r) std::memcpy(&theirs[r], lines[r].payload, sizeof(Descriptor));
  for (int r = 0; r < c.size(); ++r)
    if (theirs[r].shape != theirs[c.rank()].shape || (request_.in_splits.empty() && theirs[r].count != request_.count))
      return compare_with(r);
  if (!request_.in_splits.empty()) TUTTI_TRY(check_splits());
  if (can_go_direct(theirs.data())) {
    act_direct(theirs.data());
    post(nullptr, 0);
    stage_ = Stage::kLeave;
    return Progress::kMoved;
  }
  std::vector<std::byte*> slots(c.size());
  std::uint64_t largest = 0;
  for (int r = 0; r < c.size(); ++r) {
    slots[r] = c.resolve(theirs[r].slots);
    largest = std::max(largest, theirs[r].largest_split);
  }
  staged_ = std::make_unique<StagedTransfer>(c, request_, std::move(slots), largest);
  stage_ = Stage::kStaged;
  return Progress::kMoved;
}

// The same answer on every rank: it depends on what all of them have read.
bool DirectOperation::can_go_direct(const Descriptor* theirs) const {
  const auto all = [&](std::uint64_t Descriptor::*place) {
    return std::all_of(theirs, theirs + channel_.size(), [&](const Descriptor& d) { return d.*place != 0; });
  };
  switch (request_.kind) {
    case Kind::kAllReduce:
      return all(&Descriptor::in) && all(&Descriptor::out);
    case Kind::kBroadcast:
    case Kind::kScatter:
      return theirs[request_.root].in != 0;
    case Kind::kReduce:
    case Kind::kGather:
    case Kind::kAllGather:
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
      return all(&Descriptor::in);
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
  return false;
}

void DirectOperation::act_direct(const Descriptor* theirs) {
  DirectChannel& c = channel_;
  const int rank = c.rank(), size = c.size(), root = request_.root;
  const std::size_t n = std::size_t(size), count = request_.count, bytes = count * element_;
  const int divisor = request_.op == ReduceOp::kAvg ? size : 1;
  const std::size_t line = 64 / element_;
  const auto cut = [&](int r) { return r >= size ? count : count * std::size_t(r) / n / line * line; };
  const auto in_of = [&](int r) { return c.resolve(theirs[r].in); };
  const auto out_of = [&](int r) { return c.resolve(theirs[r].out); };
  std::byte* const out = static_cast<std::byte*>(request_.out);
  std::vector<const void*> ins(n);
  std::vector<void*> outs;
  switch (request_.kind) {
    case Kind::kAllReduce: {
      const std::size_t begin = cut(rank), end = cut(rank + 1);
      for (int r = 0; r < size; ++r) ins[r] = in_of(r) + begin * element_, outs.push_back(out_of(r) + begin * element_);
      reduce_many(request_.dtype, request_.op, ins, outs, end - begin, divisor);
      break;
    }
    case Kind::kReduce: {
      const bool shared = theirs[root].out != 0;  // else the root adds alone
      if (!shared && rank != root) break;
      const std::size_t begin = shared ? cut(rank) : 0, end = shared ? cut(rank + 1) : count;
      for (int r = 0; r < size; ++r) ins[r] = in_of(r) + begin * element_;
      outs.push_back((shared ? out_of(root) : out) + begin * element_);
      reduce_many(request_.dtype, request_.op, ins, outs, end - begin, divisor);
      break;
    }
    case Kind::kBroadcast: {
      const std::byte* const from = in_of(root);
      const int other = 1 - root;
      if (size == 2 && theirs[other].out != 0 && bytes >= kStreamFrom) {  // both cores move a half
        const std::size_t begin = cut(rank) * element_, end = cut(rank + 1) * element_;
        copy_bytes(out_of(other) + begin, from + begin, end - begin);
      } else if (rank != root) {
        copy_bytes(out, from, bytes);
      }
      break;
    }
    case Kind::kGather:
      if (rank != root) break;
      [[fallthrough]];
    case Kind::kAllGather:
      for (int k = 0; k < size; ++k) {
        const int r = (rank + k) % size;  // not all at the same rank at once
        if (out + std::size_t(r) * bytes != in_of(r)) copy_bytes(out + std::size_t(r) * bytes, in_of(r), bytes);
      }
      break;
    case Kind::kScatter:
      if (in_of(root) + std::size_t(rank) * bytes != out)
        copy_bytes(out, in_of(root) + std::size_t(rank) * bytes, bytes);
      break;
    case Kind::kReduceScatter:
      for (int r = 0; r < size; ++r) ins[r] = in_of(r) + std::size_t(rank) * bytes;
      outs.push_back(out);
      reduce_many(request_.dtype, request_.op, ins, outs, count, divisor);
      break;
    case Kind::kAllToAll: {
      std::size_t at = 0;
      std::vector<std::size_t> begin(n);
      for (int r = 0; r < size; ++r) {
        begin[r] = request_.out_splits.empty() ? std::size_t(r) * count : at;
        if (!request_.out_splits.empty()) at += request_.out_splits[r];
      }
      for (int k = 0; k < size; ++k) {
        const int r = (rank + k) % size;
        std::size_t from = std::size_t(rank) * count, amount = count;
        if (!request_.out_splits.empty()) {
          const std::uint64_t* const splits = c.control().splits(r);
          from = 0, amount = request_.out_splits[r];
          for (int before = 0; before < rank; ++before) from += splits[before];
        }
        copy_bytes(out + begin[r] * element_, in_of(r) + from * element_, amount * element_);
      }
      break;
    }
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
}

Status DirectOperation::check_splits() const {
  for (int r = 0; r < channel_.size(); ++r) {
    const std::uint64_t theirs = channel_.control().splits(r)[channel_.rank()];
    if (theirs != request_.out_splits[r])
      return Error{.code = Code::kMismatch,
                   .detail = detail::words("sends ", std::to_string(theirs), " elements, but out_splits[", r,
                                           "] of this rank expects ", std::to_string(request_.out_splits[r])),
                   .hint = "in_splits[b] of rank a must equal out_splits[a] of rank b",
                   .peer = r};
  }
  return {};
}

}  // namespace tutti
