// Ranks of one host share memory, so a collective needs no messages: the ranks meet, read and write one another's
// buffers, and meet again. There are three paths, chosen from the call alone, so that all ranks choose alike:
//
//   inline    up to 112 bytes from each rank ride in the flag line itself: one meeting, one or two cache
//             misses a peer
//   one-shot  up to 2 KiB: each rank copies its bytes into a slot, meets, and reads everybody's
//   large     each rank says where its buffers are (they need not be at the same place), and meets. If all buffers
//             involved are in shared arenas: *direct*. Rank r adds slice r of all inputs, in rank order, and stores it
//             to all outputs, which moves 2 bytes per byte; a second meeting ends the call. Otherwise *staged*
//             (staged.cc). A rank that gives a few KiB of private memory gives a copy in shared memory instead. If all
//             ranks do, an all_reduce needs no second meeting: each rank adds the copies, which no rank overwrites.
//
// Where ranks outnumber the cores, each rank that runs takes the next slice of a short direct all_reduce (share()).
//
// The order of every sum is the rank order on every path, so all ranks and all runs get the same bits.
//
// Calls are compared at the first meeting by a 16-bit fingerprint in the word that every rank reads anyway, and large
// calls field by field. A rank that finds a difference writes its call into its CallRecord, reads the peer's, and
// reports both.
#include "tutti/comm/shared_memory/direct.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tutti/base/clock.h"
#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/links/executor.h"
#include "tutti/comm/shared_memory/small.h"
#include "tutti/comm/shared_memory/staged.h"

namespace tutti::comm {
namespace {

constexpr Duration kComparePatience = std::chrono::seconds(1);
constexpr std::size_t kSlice = 2048;  // bytes of a sum that all ranks share
constexpr std::size_t kMostCopied = 8 << 10, kMostRead = 64 << 10;
static_assert(kMostCopied <= kPieceBytes);

// Normalizes the fields that do not distinguish calls.
Request canonical(Request r) {
  if (!is_reduction(r.kind)) r.op = ReduceOp::kSum;
  if (!has_root(r.kind)) r.root = 0;
  r.in = given(r);
  if (verb(r.kind).combine == Verb::Combine::kNothing) r.dtype = DType::kU8, r.count = 0;
  return r;
}

// The most bytes that any rank contributes, if all ranks can compute that alike; otherwise a value too large for the
// small paths.
std::size_t most_given(const Request& r, int size) {
  if (!has_splits(r)) return contributed(r, size);
  if (!has_common_splits(r.kind)) return ~std::size_t(0);
  if (gives_parts(r.kind)) return elements_of(r, 0, size).in * size_of(r.dtype);
  return *std::max_element(r.out_splits.begin(), r.out_splits.end()) * size_of(r.dtype);
}

}  // namespace

DirectOperation::DirectOperation(DirectChannel& channel, const Request& request, std::uint64_t sequence,
                                 const InlineCall& begun)
    : channel_(channel),
      request_(canonical(request)),
      sequence_(sequence),
      word_(begun.word),
      element_(size_of(request.dtype)),
      fingerprint_(fingerprint_of(request)),
      stage_(begun.word == 0    ? Stage::kEnter
             : begun.is_leaving ? Stage::kLeave
                                : Stage::kMeet) {
  const std::size_t bytes = most_given(request_, channel.size());
  const std::size_t inline_bytes = request_.op == ReduceOp::kPremulSum ? kFactorOffset : kInlineBytes;
  way_ = bytes <= inline_bytes ? Way::kInline : bytes <= kOneShotBytes ? Way::kOneShot : Way::kLarge;
}

void DirectOperation::post(const void* payload, std::size_t bytes) {
  word_ = channel_.post(fingerprint_, payload, bytes);
  next_ = 0;
}

std::optional<bool> DirectOperation::awaits_this_core() const {
  return stage_ == Stage::kShare || channel_.awaits_this_core(word_, next_);
}

// Writes this rank's call to its record and waits for the peer's. The peer finds the difference at the same tick.
Result<Progress> DirectOperation::compare_with(int peer) {
  CallRecord& mine = channel_.control().record(channel_.rank());
  mine.sequence.store(sequence_, std::memory_order_relaxed);
  const Extent extent = *extent_of(request_, channel_.rank(), channel_.size());
  mine.count.store(has_splits(request_) ? std::max(extent.in, extent.out) : request_.count, std::memory_order_relaxed);
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
    if (record.shape.load(std::memory_order_relaxed) == pack_shape(request_))
      if (auto different = different_splits(next_)) return *std::move(different);
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
  if (stage_ == Stage::kShare) {
    for (const int owner : channel_.owners_of_slices(tick))
      if (owner != channel_.rank()) blockers.ranks.push_back(owner);
    // A rank may have taken a slice and exited before it wrote its name as owner. Then any rank may be that one.
    if (blockers.ranks.empty())
      for (int r = 0; r < channel_.size(); ++r)
        if (r != channel_.rank()) blockers.ranks.push_back(r);
    return;
  }
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
    case Stage::kShare:
      return share();
    case Stage::kMeet:
    case Stage::kLeave:
    case Stage::kStaged:
      break;
  }
  if (stage_ == Stage::kStaged) staged_->prepare();
  switch (channel_.meet(word_, next_)) {
    case DirectChannel::Arrivals::kIncomplete:
      return Progress::kBlocked;
    case DirectChannel::Arrivals::kDifferent:
      return compare_with(next_);
    case DirectChannel::Arrivals::kComplete:
      break;
  }
  channel_.spread_now_and_then();
  if (stage_ == Stage::kLeave) return Progress::kDone;
  return stage_ == Stage::kMeet ? after_meeting() : after_piece();
}

// Iteration k of the pipeline. Piece k was copied in before the barrier. Now piece k - 1 is combined and piece k - 2 is
// copied out.
Result<Progress> DirectOperation::after_piece() {
  StagedTransfer& s = *staged_;
  s.waiting = false;
  const std::size_t k = s.iteration++;
  if (k >= 1 && k - 1 < s.pieces()) s.combine(k - 1);
  if (k < s.pieces() + 1) post(nullptr, 0);
  if (k >= 2) s.copy_out(k - 2);
  return k == s.pieces() + 1 ? Progress::kDone : Progress::kMoved;
}

// Bytes that this rank contributes.
std::size_t DirectOperation::given_bytes() const {
  if (!gives(request_, channel_.rank())) return 0;
  if (!has_splits(request_)) return contributed(request_, channel_.size());
  return extent_of(request_, channel_.rank(), channel_.size())->in * element_;
}

Result<Progress> DirectOperation::enter() {
  DirectChannel& c = channel_;
  stage_ = Stage::kMeet;
  const std::size_t bytes = given_bytes();
  Descriptor mine{.count = request_.count, .shape = pack_shape(request_)};
  if (has_splits(request_)) tell_splits(mine);
  std::byte payload[kLinePayload] = {};
  const bool multiplies = request_.op == ReduceOp::kPremulSum;
  if (multiplies) std::memcpy(payload + kFactorOffset, &request_.factor, sizeof request_.factor);
  switch (way_) {
    case Way::kInline:
      if (!multiplies) {
        post(request_.in, bytes);
        break;
      }
      if (bytes > 0) std::memcpy(payload, request_.in, bytes);
      post(payload, sizeof payload);
      break;
    case Way::kOneShot:
      if (bytes > 0) std::memcpy(c.one_shot(c.tick() + 1, c.rank()), request_.in, bytes);
      post(payload, multiplies ? sizeof payload : 0);
      break;
    case Way::kLarge: {
      mine.slots = TUTTI_TRY(c.slots());
      // An empty contribution is readable from anywhere.
      mine.in = bytes == 0 && gives(request_, c.rank()) ? mine.slots : c.place_of(request_.in, bytes);
      if (!has_splits(request_)) mine.out = c.place_of(request_.out, request_.count * element_);
      if (request_.kind == Kind::kAllToAll && request_.in == request_.out)
        mine.in = 0;  // peers would read overwritten data
      if (mine.in == 0 && bytes > 0 && bytes <= most_copied()) {
        mine.in = c.copy_place(mine.slots, c.tick() + 1);
        std::memcpy(c.resolve(mine.in), request_.in, bytes);
      }
      std::memcpy(payload, &mine, sizeof mine);
      post(payload, multiplies ? sizeof payload : sizeof mine);
      break;
    }
  }
  return Progress::kMoved;
}

Result<Progress> DirectOperation::after_meeting() {
  DirectChannel& c = channel_;
  const std::uint64_t tick = DirectChannel::tick_of(word_);
  const CallLine* lines = c.lines(tick);
  CallScratch& scratch = c.scratch();
  if (request_.op == ReduceOp::kPremulSum)
    for (int r = 0; r < c.size(); ++r)
      std::memcpy(&scratch.factors[r], lines[r].payload + kFactorOffset, sizeof(double));
  if (way_ != Way::kLarge) {
    for (int r = 0; r < c.size(); ++r)
      scratch.ins[r] = way_ == Way::kInline ? static_cast<const void*>(lines[r].payload) : c.one_shot(tick, r);
    finish_small(request_, c.rank(), c.size(), scratch.ins, scratch.factors.data());
    return Progress::kDone;
  }
  auto& theirs = scratch.descriptors;
  for (int r = 0; r < c.size(); ++r) std::memcpy(&theirs[r], lines[r].payload, sizeof(Descriptor));
  for (int r = 0; r < c.size(); ++r)
    if (theirs[r].shape != theirs[c.rank()].shape || theirs[r].count != theirs[c.rank()].count) return compare_with(r);
  if (has_splits(request_)) TUTTI_TRY(check_splits());
  if (all_gave_copies()) {
    for (int r = 0; r < c.size(); ++r) scratch.ins[r] = r == c.rank() ? request_.in : c.resolve(theirs[r].in);
    finish_small(request_, c.rank(), c.size(), scratch.ins, scratch.factors.data());
    return Progress::kDone;
  }
  if (can_go_direct()) {
    if (is_shared()) {
      stage_ = Stage::kShare;
      return share();
    }
    act_direct();
    post(nullptr, 0);
    stage_ = Stage::kLeave;
    return Progress::kMoved;
  }
  std::uint64_t largest = 0;
  for (int r = 0; r < c.size(); ++r) {
    scratch.slots[r] = c.resolve(theirs[r].slots);
    largest = std::max(largest, theirs[r].largest_split);
  }
  staged_.emplace(c, request_, largest);
  stage_ = Stage::kStaged;
  return Progress::kMoved;
}

// Bytes of private memory that this rank copies to shared memory. In an all_reduce every peer reads all copies, so the
// limit is lower if there are many ranks.
std::size_t DirectOperation::most_copied() const {
  if (request_.kind != Kind::kAllReduce) return kMostCopied;
  return std::min(kMostCopied, kMostRead / std::size_t(channel_.size()));
}

// Whether all ranks of an all_reduce posted copies. They stay unchanged until all ranks have entered the next call.
bool DirectOperation::all_gave_copies() const {
  if (request_.kind != Kind::kAllReduce) return false;
  const auto& theirs = channel_.scratch().descriptors;
  const std::uint64_t tick = DirectChannel::tick_of(word_);
  return std::all_of(theirs.begin(), theirs.end(),
                     [&](const Descriptor& d) { return d.in == channel_.copy_place(d.slots, tick); });
}

// Sharing pays if ranks outnumber the cores and the vector is short. For a long vector a fixed division is better: each
// slice is still in the cache of the core that had it in the last call.
bool DirectOperation::is_shared() const {
  const std::size_t slices = std::min(channel_.size(), SharedWork::kMostSlices);
  return channel_.shares_work() && request_.kind == Kind::kAllReduce && request_.count * element_ <= slices * kSlice;
}

// All ranks have entered and posted the addresses of their buffers. So a running rank can add slices while other ranks
// wait for a core. Those find the work done when they run again. A call costs one turn of all ranks instead of two.
Result<Progress> DirectOperation::share() {
  DirectChannel& c = channel_;
  const std::uint64_t tick = DirectChannel::tick_of(word_);
  const std::size_t bytes = request_.count * element_;
  const int slices = int((bytes + kSlice - 1) / kSlice);
  auto& [descriptors, ins, outs, slots, factors, cores] = c.scratch();
  bool moved = false;
  while (const auto slice = c.take_slice(tick, slices)) {
    const std::size_t begin = std::size_t(*slice) * kSlice;
    for (int r = 0; r < c.size(); ++r) {
      ins[r] = c.resolve(descriptors[r].in) + begin;
      outs[r] = c.resolve(descriptors[r].out) + begin;
    }
    reduce_many(request_.dtype, request_.op, ins, outs, std::min(kSlice, bytes - begin) / element_,
                request_.op == ReduceOp::kAvg ? c.size() : 1, factors.data());
    c.finish_slice(tick, *slice, slices);
    moved = true;
  }
  if (c.all_slices_are_done(tick, slices)) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kBlocked;
}

// All ranks get the same answer, because it depends only on the posted descriptors.
bool DirectOperation::can_go_direct() const {
  const auto& theirs = channel_.scratch().descriptors;
  const bool writes_all = is_reduction(request_.kind) && !has_root(request_.kind) && !gives_parts(request_.kind);
  for (int r = 0; r < channel_.size(); ++r)
    if ((gives(request_, r) && theirs[r].in == 0) || (writes_all && gets(request_, r) && theirs[r].out == 0))
      return false;
  return true;
}

void DirectOperation::act_direct() {
  DirectChannel& c = channel_;
  const auto& theirs = c.scratch().descriptors;
  const int rank = c.rank(), size = c.size(), root = request_.root;
  const std::size_t count = request_.count, bytes = count * element_;
  const int divisor = request_.op == ReduceOp::kAvg ? size : 1;
  const double* const factors = c.scratch().factors.data();
  const ElementRange mine = own_slice(count, element_, rank, size);
  const auto in_of = [&](int r) { return c.resolve(theirs[r].in); };
  const auto out_of = [&](int r) { return c.resolve(theirs[r].out); };
  std::byte* const out = static_cast<std::byte*>(request_.out);
  auto& ins = c.scratch().ins;
  auto& outs = c.scratch().outs;
  const std::span<void* const> one_out = std::span(outs).first(1);
  if (request_.kind == Kind::kAllReduce) {
    const std::size_t before = mine.begin * element_;
    for (int r = 0; r < size; ++r) ins[r] = in_of(r) + before, outs[r] = out_of(r) + before;
    reduce_many(request_.dtype, request_.op, ins, outs, mine.end - mine.begin, divisor, factors);
  } else if (is_scan(request_.kind)) {
    // From the last rank down, because in place the output of a rank is an input of the ranks after it.
    const std::size_t before = mine.begin * element_;
    for (int r = 0; r < size; ++r) ins[r] = in_of(r) + before;
    for (int r = size - 1; r >= 0 && gets(request_, r); --r) {
      const int added = summands(request_.kind, r, size);
      outs[0] = out_of(r) + before;
      reduce_many(request_.dtype, request_.op, std::span(ins).first(std::size_t(added)), one_out, mine.end - mine.begin,
                  request_.op == ReduceOp::kAvg ? added : 1, factors);
    }
  } else if (request_.kind == Kind::kReduce) {
    const bool shared = theirs[root].out != 0;  // otherwise the root adds alone
    if (!shared && rank != root) return;
    const auto [begin, end] = shared ? mine : ElementRange{0, count};
    for (int r = 0; r < size; ++r) ins[r] = in_of(r) + begin * element_;
    outs[0] = (shared ? out_of(root) : out) + begin * element_;
    reduce_many(request_.dtype, request_.op, ins, one_out, end - begin, divisor, factors);
  } else if (is_reduction(request_.kind)) {
    const Stretch own = stretch_of(request_, rank, rank, rank);
    for (int r = 0; r < size; ++r) ins[r] = in_of(r) + own.in_begin * element_;
    outs[0] = out;
    reduce_many(request_.dtype, request_.op, ins, one_out, own.count, divisor, factors);
  } else if (request_.kind == Kind::kBroadcast && size == 2 && theirs[1 - root].out != 0 && bytes >= kStreamFrom) {
    const std::size_t begin = mine.begin * element_, end = mine.end * element_;  // each core moves one half
    copy_bytes(out_of(1 - root) + begin, in_of(root) + begin, end - begin);
  } else if (gets(request_, rank)) {
    for (int k = 0; k < size; ++k) {
      const int r = (rank + k) % size;  // each rank starts at another peer
      if (!gives(request_, r)) continue;
      const Stretch s = stretch_of(request_, rank, r, rank);
      const std::size_t from = tells_splits() ? split_before(r) : s.in_begin;
      std::byte* const to = out + s.out_begin * element_;
      if (to != in_of(r) + from * element_) copy_bytes(to, in_of(r) + from * element_, s.count * element_);
    }
  }
}

// Whether the peers need this rank's splits: only the sender knows where its parts begin.
bool DirectOperation::tells_splits() const {
  return gives_parts(request_.kind) && has_splits(request_) && !has_common_splits(request_.kind);
}

// The element at which the part for this rank begins in the buffer of `from`, which has published its splits.
std::size_t DirectOperation::split_before(int from) const {
  const std::uint64_t* const splits = channel_.control().splits(from);
  return std::size_t(std::accumulate(splits, splits + channel_.rank(), std::uint64_t(0)));
}

// Writes what this rank knows of the splits to shared memory.
void DirectOperation::tell_splits(Descriptor& mine) const {
  std::uint64_t* const splits = channel_.control().splits(channel_.rank());
  const bool same = has_common_splits(request_.kind);
  mine.count = 0;  // may differ between ranks
  if (!gives(request_, channel_.rank())) return;
  if (!same && !gives_parts(request_.kind)) {
    splits[request_.root] = mine.largest_split = request_.count;
    return;
  }
  const auto known = same ? common_splits(request_) : request_.in_splits;
  std::copy(known.begin(), known.end(), splits);
  mine.largest_split = *std::max_element(known.begin(), known.end());
  if (same) mine.count = std::accumulate(known.begin(), known.end(), std::uint64_t(0));
}

// If all ranks must pass the same splits: an error for the first one in which the peer's differ from this rank's.
std::optional<Error> DirectOperation::different_splits(int peer) const {
  if (!has_common_splits(request_.kind)) return {};
  const auto mine = common_splits(request_);
  const std::uint64_t* const theirs = channel_.control().splits(peer);
  for (std::size_t r = 0; r < mine.size(); ++r)
    if (theirs[r] != mine[r])
      return Error{.code = Code::kMismatch,
                   .detail = detail::words("gave ", gives_parts(request_.kind) ? "in" : "out", "_splits[", int(r),
                                           "] = ", std::to_string(theirs[r]), ", this rank ", std::to_string(mine[r])),
                   .hint = "every rank of the group gives the same splits",
                   .peer = peer};
  return {};
}

// For large calls, where all splits are readable: checks that sent and expected sizes agree.
Status DirectOperation::check_splits() const {
  const int rank = channel_.rank();
  for (int r = 0; r < channel_.size(); ++r) {
    if (auto different = different_splits(r)) return *std::move(different);
    if (has_common_splits(request_.kind) || !gets(request_, rank) || !gives(request_, r)) continue;
    const std::uint64_t theirs = channel_.control().splits(r)[rank];
    if (!gets_parts(request_.kind) && theirs != request_.count)
      return Error{.code = Code::kMismatch,
                   .detail = detail::words("scatters in_splits[", rank, "] = ", std::to_string(theirs),
                                           " elements to this rank, which expects ", std::to_string(request_.count)),
                   .hint = "in_splits of the root and this rank's count must agree",
                   .peer = r};
    if (gets_parts(request_.kind) && theirs != request_.out_splits[r])
      return Error{.code = Code::kMismatch,
                   .detail = detail::words("sends ", std::to_string(theirs), " elements, but out_splits[", r,
                                           "] of this rank expects ", std::to_string(request_.out_splits[r])),
                   .hint = has_root(request_.kind) ? "out_splits of the root and the sender's count must agree"
                                                   : "in_splits[b] of rank a must equal out_splits[a] of rank b",
                   .peer = r};
  }
  return {};
}

}  // namespace tutti::comm
