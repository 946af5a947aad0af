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

#include <sched.h>

#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/comm/direct/staged.h"
#include "tutti/comm/executor.h"
#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/reduce.h"

namespace tutti {
namespace {

constexpr int kTickShift = 16;
constexpr std::size_t kMaxRanksOnStack = 64;
constexpr Duration kComparePatience = std::chrono::seconds(1);

std::uint16_t fingerprint_of(const Request& r) {
  // Root and op count only where the verb has them, so that their default values elsewhere do not matter.
  std::uint64_t h =
      pack_shape(r) * 0x9e3779b97f4a7c15ull ^ (r.in_splits.empty() ? r.count : ~0ull) * 0xc2b2ae3d27d4eb4full;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  return std::uint16_t(h >> 48);
}

std::uint32_t current_core() { return std::uint32_t(::sched_getcpu()); }

// What does not tell one call from another is made equal.
Request canonical(Request r) {
  if (!is_reduction(r.kind)) r.op = ReduceOp::kSum;
  if (!has_root(r.kind)) r.root = 0;
  if (r.kind == Kind::kBroadcast) r.in = r.out;  // one buffer
  if (r.kind == Kind::kBarrier) r.dtype = DType::kU8, r.count = 0;
  return r;
}

}  // namespace

DirectChannel::DirectChannel(Host& host, Heap& heap, GroupMemory& memory, std::vector<int> local_ranks, int rank,
                             bool crowded)
    : host_(host),
      heap_(heap),
      memory_(memory),
      control_(memory.control),
      local_ranks_(std::move(local_ranks)),
      rank_(rank),
      size_(int(local_ranks_.size())),
      crowded_(crowded) {
  for (int r = 0; r < size_; ++r)
    if (r != rank_) bells_.push_back(host_.bell(local_ranks_[r]));
}

std::uint64_t DirectChannel::place_of(const void* p, std::size_t bytes) const {
  if (!p) return 0;
  const Host::Place place = host_.find(p, bytes);
  return place.owner < 0 ? 0 : std::uint64_t(place.owner + 1) << 48 | place.offset;
}

Result<std::uint64_t> DirectChannel::slots() {
  if (!has_slots_) {
    slots_offset_ = TUTTI_TRY(memory_.allocate(heap_, kSlotsBytes));
    has_slots_ = true;
  }
  return std::uint64_t(host_.rank() + 1) << 48 | slots_offset_;
}

void DirectChannel::ring_peers() const {
  for (const Bell& bell : bells_) bell.ring();
}

DirectOperation::DirectOperation(DirectChannel& channel, const Request& request, std::uint64_t sequence)
    : channel_(channel),
      request_(canonical(request)),
      sequence_(sequence),
      element_(size_of(request.dtype)),
      fingerprint_(fingerprint_of(request_)) {
  const std::size_t bytes = contributed();
  way_ = bytes <= kInlineBytes ? Way::kInline : bytes <= kOneShotBytes ? Way::kOneShot : Way::kLarge;
  if (!request_.in_splits.empty()) way_ = Way::kLarge;  // ranks may give different amounts
}

DirectOperation::~DirectOperation() = default;

std::size_t DirectOperation::contributed() const {
  return request_.count * element_ * (gives_parts(request_.kind) ? std::size_t(channel_.size_) : 1);
}

void DirectOperation::post(const void* payload, std::size_t bytes) {
  DirectChannel& c = channel_;
  const std::uint64_t tick = ++c.tick_;
  CallLine& line = c.control_.lines(int(tick % kSlots))[c.rank_];
  word_ = tick << kTickShift | fingerprint_;
  if (bytes) std::memcpy(line.payload, payload, bytes);
  if (c.crowded_) line.core.store(current_core(), std::memory_order_relaxed);
  line.word.store(word_, std::memory_order_release);
  __builtin_prefetch(&c.control_.lines(int((tick + 1) % kSlots))[c.rank_], 1);  // own it before it is needed
  c.ring_peers();
  next_ = 0;
}

// Whether all peers have posted the tick that this rank posted last; if `kDifferent`, next_ posted another call.
DirectOperation::Meeting DirectOperation::meet() {
  const CallLine* lines = channel_.control_.lines(int((word_ >> kTickShift) % kSlots));
  for (; next_ < channel_.size_; ++next_) {
    const std::uint64_t word = lines[next_].word.load(std::memory_order_acquire);
    if (word == word_) continue;
    return word >> kTickShift == word_ >> kTickShift ? Meeting::kDifferent : Meeting::kIncomplete;
  }
  return Meeting::kComplete;
}

// A peer ran last where it posted the tick before.
bool DirectOperation::awaits_this_core() const {
  const std::uint64_t tick = word_ >> kTickShift;
  const CallLine* const lines = channel_.control_.lines(int(tick % kSlots));
  const CallLine* const before = channel_.control_.lines(int((tick - 1) % kSlots));
  const std::uint32_t here = current_core();
  for (int r = next_; r < channel_.size_; ++r)
    if (before[r].core.load(std::memory_order_relaxed) == here &&
        lines[r].word.load(std::memory_order_relaxed) != word_)
      return true;
  return false;
}

// Tells this rank's call, and waits for the peer, which finds the difference at the same tick, to tell its own.
Result<Progress> DirectOperation::compare_with(int peer) {
  CallRecord& mine = channel_.control_.record(channel_.rank_);
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
  const CallRecord& record = channel_.control_.record(next_);
  Error error{.code = Code::kMismatch,
              .hint = "all ranks of a group must make the same calls in the same order",
              .peer = next_};
  if (record.word.load(std::memory_order_acquire) >> kTickShift == word_ >> kTickShift) {
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
  const std::uint64_t word = word_ >> kTickShift;
  for (int r = 0; r < channel_.size_; ++r)
    if (channel_.control_.lines(int(word % kSlots))[r].word.load(std::memory_order_acquire) >> kTickShift != word)
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
  switch (meet()) {
    case Meeting::kIncomplete:
      return Progress::kBlocked;
    case Meeting::kDifferent:
      return compare_with(next_);
    case Meeting::kComplete:
      break;
  }
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
  const bool gives = request_.kind == Kind::kBroadcast || request_.kind == Kind::kScatter
                         ? c.rank_ == request_.root
                         : request_.kind != Kind::kBarrier;
  switch (way_) {
    case Way::kInline:
      post(request_.in, gives ? contributed() : 0);
      break;
    case Way::kOneShot: {
      if (gives) std::memcpy(c.control_.one_shot(int((c.tick_ + 1) % kSlots), c.rank_), request_.in, contributed());
      post(nullptr, 0);
      break;
    }
    case Way::kLarge: {
      const std::size_t n = std::size_t(c.size_), vector = request_.count * element_;
      Descriptor mine{.slots = TUTTI_TRY(c.slots()), .count = request_.count, .shape = pack_shape(request_)};
      if (!request_.in_splits.empty()) {
        std::uint64_t* const splits = c.control_.splits(c.rank_);
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
  const std::uint64_t tick = word_ >> kTickShift;
  const CallLine* lines = c.control_.lines(int(tick % kSlots));
  const void* parts_on_stack[kMaxRanksOnStack];
  std::vector<const void*> parts_on_heap(c.size_ > int(kMaxRanksOnStack) ? c.size_ : 0);
  const void** parts = parts_on_heap.empty() ? parts_on_stack : parts_on_heap.data();
  if (way_ == Way::kInline) {
    for (int r = 0; r < c.size_; ++r) parts[r] = lines[r].payload;
    finish_small(parts);
    return Progress::kDone;
  }
  if (way_ == Way::kOneShot) {
    for (int r = 0; r < c.size_; ++r) parts[r] = c.control_.one_shot(int(tick % kSlots), r);
    finish_small(parts);
    return Progress::kDone;
  }
  std::vector<Descriptor> theirs(c.size_);
  for (int r = 0; r < c.size_; ++r) std::memcpy(&theirs[r], lines[r].payload, sizeof(Descriptor));
  for (int r = 0; r < c.size_; ++r)
    if (theirs[r].shape != theirs[c.rank_].shape || (request_.in_splits.empty() && theirs[r].count != request_.count))
      return compare_with(r);
  if (!request_.in_splits.empty()) TUTTI_TRY(check_splits());
  if (can_go_direct(theirs.data())) {
    act_direct(theirs.data());
    post(nullptr, 0);
    stage_ = Stage::kLeave;
    return Progress::kMoved;
  }
  std::vector<std::byte*> slots(c.size_);
  std::uint64_t largest = 0;
  for (int r = 0; r < c.size_; ++r) {
    slots[r] = c.resolve(theirs[r].slots);
    largest = std::max(largest, theirs[r].largest_split);
  }
  staged_ = std::make_unique<StagedTransfer>(c, request_, std::move(slots), largest);
  stage_ = Stage::kStaged;
  return Progress::kMoved;
}

// Every rank's contribution is readable: parts[r].
void DirectOperation::finish_small(const void* const* parts) {
  const int rank = channel_.rank_, size = channel_.size_;
  const std::size_t bytes = request_.count * element_;
  const int divisor = request_.op == ReduceOp::kAvg ? size : 1;
  const auto part = [&](int from, int index) {
    return static_cast<const std::byte*>(parts[from]) + std::size_t(index) * bytes;
  };
  const auto out = [&](int index) { return static_cast<std::byte*>(request_.out) + std::size_t(index) * bytes; };
  switch (request_.kind) {
    case Kind::kReduce:
      if (rank != request_.root) break;
      [[fallthrough]];
    case Kind::kAllReduce: {
      if (request_.dtype == DType::kF32 && request_.op == ReduceOp::kSum &&
          request_.count <= 2) {  // losses, norms, flags
        for (std::size_t i = 0; i < request_.count; ++i) {
          float sum = static_cast<const float*>(parts[0])[i];
          for (int r = 1; r < size; ++r) sum += static_cast<const float*>(parts[r])[i];
          static_cast<float*>(request_.out)[i] = sum;
        }
        break;
      }
      void* const outs[] = {request_.out};
      reduce_many(request_.dtype, request_.op, std::span(parts, size), outs, request_.count, divisor);
      break;
    }
    case Kind::kBroadcast:
      if (rank != request_.root) std::memcpy(request_.out, parts[request_.root], bytes);
      break;
    case Kind::kGather:
      if (rank != request_.root) break;
      [[fallthrough]];
    case Kind::kAllGather:
      for (int r = 0; r < size; ++r) std::memcpy(out(r), parts[r], bytes);
      break;
    case Kind::kScatter:
      std::memcpy(request_.out, part(request_.root, rank), bytes);
      break;
    case Kind::kReduceScatter: {
      std::vector<const void*> ins(size);
      for (int r = 0; r < size; ++r) ins[r] = part(r, rank);
      void* const outs[] = {request_.out};
      reduce_many(request_.dtype, request_.op, ins, outs, request_.count, divisor);
      break;
    }
    case Kind::kAllToAll:
      for (int r = 0; r < size; ++r) std::memcpy(out(r), part(r, rank), bytes);
      break;
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
}

// The same answer on every rank: it depends on what all of them have read.
bool DirectOperation::can_go_direct(const Descriptor* theirs) const {
  const auto all = [&](std::uint64_t Descriptor::*place) {
    return std::all_of(theirs, theirs + channel_.size_, [&](const Descriptor& d) { return d.*place != 0; });
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
  const int rank = c.rank_, size = c.size_, root = request_.root;
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
          const std::uint64_t* const splits = c.control_.splits(r);
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
  for (int r = 0; r < channel_.size_; ++r) {
    const std::uint64_t theirs = channel_.control_.splits(r)[channel_.rank_];
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
