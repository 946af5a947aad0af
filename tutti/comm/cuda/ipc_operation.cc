// Ranks of one host copy directly from one another's GPU memory. The messages between them are small calls on the host,
// by the CPU's backend:
//
//   notes     an all_gather, once the work before the call on the caller's stream is done: each rank sends its call and
//             the position of its memory. A rank that makes another call is reported here. If a rank cannot share its
//             memory, all ranks stage the call.
//   opening   an all_gather, if a note names memory that is not open yet: every rank opens the memory and reports
//             whether it could. If a rank could not, all ranks stage the call.
//   parts     an all_to_all, if only the sender knows where the receiver's part is (all_to_all with splits, scatter_v)
//   copying   each rank reads its output from the memory of its peers, in an order that spreads the load. The process's
//             adder (adder.h) adds a reduction in the order of the ranks, and reads the memory of the peers. Each rank
//             of an all_reduce adds one slice. After a barrier each rank copies the slices of its peers.
//   leaving   a barrier: no rank reads the memory any longer.
//
// Nothing here waits: step() asks events whether they have passed.
#include "tutti/comm/cuda/ipc_operation.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/log.h"
#include "tutti/comm/cuda/adder.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/links/call_header.h"
#include "tutti/comm/shared_memory/small.h"

namespace tutti::cuda {
namespace {

constexpr Duration kAskAgainSoon = std::chrono::microseconds(50);
constexpr Duration kPeersWait = std::chrono::seconds(5);
// Bytes up to which an all_reduce is staged: two short copies cost less than an addition and a copy for every peer.
constexpr std::size_t kMostStaged = 16 << 10;

// A text in a message between ranks.
struct ShortText {
  char text[96] = "";
  void set(const std::string& words) {
    const std::size_t length = std::min(words.size(), sizeof text - 1);
    std::memcpy(text, words.data(), length);
    text[length] = 0;
  }
};

struct CallNote {
  comm::CallHeader call;
  std::uint64_t has_splits = 0;
  std::uint64_t given = 0;  // elements, of a gather_v
  std::uint64_t can = 0;    // whether this rank can carry the call by IPC
  std::uint64_t freed = 0;  // an allocation that this rank has freed, and peers may have open
  ShortText why_not;        // empty: such calls are always staged
  MemoryNote in, out;
};

struct OpenedNote {
  std::uint64_t failed = 0;
  ShortText why;
};

// Where a part begins in the sender's buffer, and how many elements it has.
struct PartNote {
  std::uint64_t begin = 0, count = 0;
};

// Whether only the sender knows where the receiver's part is.
bool exchanges_parts(const Request& r) {
  return r.kind == Kind::kScatterV || (r.kind == Kind::kAllToAll && !r.in_splits.empty());
}

class IpcOperation final : public comm::Operation {
 public:
  IpcOperation(const IpcSetup& setup, const Request& request, std::uint64_t sequence, Event ready)
      : setup_(setup),
        runtime_(*setup.runtime),
        group_(*setup.group),
        request_(request),
        sequence_(sequence),
        element_(size_of(request.dtype)),
        notes_(std::size_t(setup.size)),
        ready_(std::move(ready)) {}

  ~IpcOperation() override {
    on_host_.reset();
    const OnDevice current(runtime_, request_.device);
    if (is_quiet()) {
      setup_.pool->give_back_stream(request_.device, stream_);
      return;
    }
    log::warn("a GPU still uses the memory of " + to_string(request_) + " " +
              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kPeersWait).count()) +
              " s after the call has ended; the memory of the peers stays open");
    group_.open.abandon();
  }

  Result<comm::Progress> step() override {
    const OnDevice current(runtime_, request_.device);
    if (staged_) return staged_->step();
    if (!on_host_) return step_on_device();
    const auto progress = on_host_->step();
    if (!progress.ok()) return of_this_call(progress.error());
    if (*progress != comm::Progress::kDone) return *progress;
    on_host_.reset();
    return after_host();
  }

  std::optional<bool> awaits_this_core() const override {
    return staged_ ? staged_->awaits_this_core() : on_host_ ? on_host_->awaits_this_core() : false;
  }
  void blockers(comm::Blockers& blockers) const override {
    if (staged_) return staged_->blockers(blockers);
    if (on_host_) return on_host_->blockers(blockers);
    blockers.on_device = true;
    blockers.look_again = kAskAgainSoon;
  }

 private:
  enum class Stage { kReady, kNotes, kOpening, kParts, kCopying, kMiddle, kSpreading, kLeaving };
  using Moved = Result<comm::Progress>;

  Moved step_on_device() {
    if (stage_ == Stage::kReady) {
      if (!TUTTI_TRY(ready_.has_passed())) return comm::Progress::kBlocked;
      return exchange_notes();
    }
    if (sum_) {
      if (!TUTTI_TRY(sum_->has_ended())) return comm::Progress::kBlocked;
      sum_.reset();
    }
    if (copied_ && !TUTTI_TRY(copied_.has_passed())) return comm::Progress::kBlocked;
    if (stage_ == Stage::kCopying && request_.kind == Kind::kAllReduce) return barrier(Stage::kMiddle);
    return barrier(Stage::kLeaving);
  }

  Moved after_host() {
    switch (stage_) {
      case Stage::kNotes:
        return after_notes();
      case Stage::kOpening:
        return after_opening();
      case Stage::kParts:
        return copy();
      case Stage::kMiddle:
        return spread();
      case Stage::kLeaving:
        return comm::Progress::kDone;
      case Stage::kReady:
      case Stage::kCopying:
      case Stage::kSpreading:
        break;
    }
    return Error{.code = Code::kInternal, .detail = "a call of the host ended that has not begun"};
  }

  Moved start_on_host(Stage stage, const Request& request) {
    stage_ = stage;
    on_host_ = TUTTI_TRY(setup_.start_on_host(request, sequence_));
    return comm::Progress::kMoved;
  }
  Moved barrier(Stage stage) { return start_on_host(stage, {.kind = Kind::kBarrier}); }
  template <class Note>
  Moved gather(Stage stage, const Note& mine, std::vector<Note>& all) {
    return start_on_host(
        stage, {.kind = Kind::kAllGather, .dtype = DType::kU8, .in = &mine, .out = all.data(), .count = sizeof(Note)});
  }

  // An error of a call of the host. The reader knows only the call on the GPU.
  Error of_this_call(Error error) const {
    error.operation.clear();
    if (error.code != Code::kMismatch || stage_ != Stage::kNotes) return error;
    error.detail =
        "made another call, on memory of the CPU, while this rank called " + comm::call_text(request_, sequence_);
    error.hint = "every rank of a group has to make the same calls in the same order";
    return error;
  }

  // ---- notes ----

  comm::CallHeader header() const {
    comm::CallHeader h = comm::header_of(request_, comm::Algorithm::kDirect, sequence_, setup_.rank);
    if (verb(request_.kind).combine == Verb::Combine::kNothing) h.dtype = DType::kU8, h.count = 0;
    if (comm::has_splits(request_) && !has_common_splits(request_.kind)) h.count = 0;  // ranks have counts of their own
    return h;
  }

  Moved exchange_notes() {
    mine_.call = header();
    mine_.has_splits = comm::has_splits(request_);
    if (request_.kind == Kind::kGatherV) mine_.given = request_.count;
    mine_.freed = group_.open.freed_here();
    if (carries_by_ipc(request_)) {
      const Status shared = share();
      mine_.can = shared.ok();
      if (!shared.ok()) mine_.why_not.set(shared.error().detail);
    }
    return gather(Stage::kNotes, mine_, notes_);
  }

  // Enters the memory that the peers read into the note.
  Status share() {
    if (const int first = group_.open.device_for(request_.device); first != request_.device)
      return Error{.code = Code::kUnsupported,
                   .detail = "its buffers are on cuda:" + std::to_string(request_.device) +
                             ", those of its first call were on cuda:" + std::to_string(first)};
    const comm::Extent extent = comm::elements_of(request_, setup_.rank, setup_.size);
    const std::size_t given = request_.kind == Kind::kBroadcast ? extent.out : extent.in;
    if (comm::gives(request_, setup_.rank) && given > 0) mine_.in = TUTTI_TRY(group_.open.share(comm::given(request_)));
    if (request_.kind == Kind::kAllReduce && extent.out > 0) mine_.out = TUTTI_TRY(group_.open.share(request_.out));
    return {};
  }

  std::optional<Error> difference_from(int peer) const {
    const CallNote& theirs = notes_[std::size_t(peer)];
    if (theirs.call.kind == mine_.call.kind && theirs.has_splits != mine_.has_splits)
      return Error{.code = Code::kMismatch,
                   .detail = "called " + comm::call_text(request_, sequence_) + " " +
                             (theirs.has_splits ? "with" : "without") + " splits, this rank " +
                             (mine_.has_splits ? "with" : "without"),
                   .hint = "splits are given by all ranks of the group or by none",
                   .peer = peer};
    auto different = comm::compare(theirs.call, mine_.call, request_, peer);
    const bool gathers = request_.kind == Kind::kGatherV && comm::gets(request_, setup_.rank);
    if (!different && gathers && theirs.given != request_.out_splits[std::size_t(peer)])
      return other_size(peer, theirs.given, request_.out_splits[std::size_t(peer)]);
    return different;
  }
  Error other_size(int peer, std::size_t sent, std::size_t expected) const {
    return {
        .code = Code::kMismatch,
        .detail = "sends " + std::to_string(sent) + " elements to this rank, which expects " + std::to_string(expected),
        .hint = !has_root(request_.kind)    ? "in_splits of the sender and out_splits of the receiver must agree"
                : gets_parts(request_.kind) ? "out_splits of the root and the sender's count must agree"
                                            : "in_splits of the root and this rank's count must agree",
        .peer = peer};
  }

  Moved after_notes() {
    for (int r = 0; r < setup_.size; ++r)
      if (auto different = difference_from(r)) return *std::move(different);
    for (int r = 0; r < setup_.size; ++r) group_.open.close_freed(r, notes_[std::size_t(r)].freed);
    if (request_.kind == Kind::kBarrier) return comm::Progress::kDone;  // all ranks have arrived
    for (int r = 0; r < setup_.size; ++r)
      if (const CallNote& note = notes_[std::size_t(r)]; !note.can) return stage(r, note.why_not.text);
    bool is_anything_new = false, is_usable = true;
    for_each_note([&](int r, const MemoryNote& note) {
      const OpenMemory::Known known = group_.open.find(r, note);
      is_anything_new |= known == OpenMemory::Known::kNew;
      is_usable &= known != OpenMemory::Known::kUnusable;
    });
    if (!is_usable) return stage();
    return is_anything_new ? open() : exchange_parts();
  }

  template <class Act>
  void for_each_note(const Act& act) {
    for (int r = 0; r < setup_.size; ++r)
      for (const MemoryNote* note : {&notes_[std::size_t(r)].in, &notes_[std::size_t(r)].out})
        if (note->is_shared) act(r, *note);
  }

  // Logs the first reason of the group.
  Moved stage(int rank, const std::string& why) {
    if (!why.empty() && !std::exchange(group_.has_reported, true) && setup_.rank == 0)
      log::info("group " + group_.name + " moves GPU memory through the CPU: rank " + std::to_string(rank) + ": " +
                why);
    return stage();
  }
  Moved stage() {
    staged_ = TUTTI_TRY(setup_.start_staged(std::move(ready_)));
    return comm::Progress::kMoved;
  }

  // ---- opening ----

  Moved open() {
    for_each_note([&](int r, const MemoryNote& note) {
      if (group_.open.find(r, note) != OpenMemory::Known::kNew) return;
      fresh_.emplace_back(r, note);
      const Status opened = group_.open.open(r, note);
      if (opened.ok() || opened_.failed) return;
      opened_.failed = 1;
      opened_.why.set("the memory of rank " + std::to_string(r) + ": " + opened.error().detail);
    });
    all_opened_.resize(std::size_t(setup_.size));
    return gather(Stage::kOpening, opened_, all_opened_);
  }

  Moved after_opening() {
    const auto failed = std::find_if(all_opened_.begin(), all_opened_.end(), [](auto& note) { return note.failed; });
    if (failed == all_opened_.end()) return exchange_parts();
    for (const auto& [r, note] : fresh_) group_.open.give_up(r, note);
    return stage(int(failed - all_opened_.begin()), failed->why.text);
  }

  // ---- parts ----

  Moved exchange_parts() {
    if (!exchanges_parts(request_)) return copy();
    const std::size_t n = std::size_t(setup_.size);
    my_parts_.resize(n), their_parts_.resize(n);
    if (comm::gives(request_, setup_.rank)) {
      const comm::Parts parts(0, request_.in_splits);
      for (int r = 0; r < setup_.size; ++r) my_parts_[std::size_t(r)] = {parts.begin(r), parts.count(r)};
    }
    return start_on_host(Stage::kParts, {.kind = Kind::kAllToAll,
                                         .dtype = DType::kI64,
                                         .in = my_parts_.data(),
                                         .out = their_parts_.data(),
                                         .count = sizeof(PartNote) / sizeof(std::int64_t)});
  }

  // The elements that this rank gets from another.
  Result<comm::Stretch> stretch_from(int from) const {
    comm::Stretch s = comm::stretch_of(request_, setup_.rank, from, setup_.rank);
    if (!exchanges_parts(request_)) return s;
    const PartNote& theirs = their_parts_[std::size_t(from)];
    if (theirs.count != s.count) return other_size(from, theirs.count, s.count);
    s.in_begin = theirs.begin;
    return s;
  }

  // ---- copying ----

  const std::byte* in_of(int rank) const {
    if (rank == setup_.rank) return static_cast<const std::byte*>(comm::given(request_));
    return group_.open.at(rank, notes_[std::size_t(rank)].in);
  }
  std::byte* out_at(std::size_t element) const { return static_cast<std::byte*>(request_.out) + element * element_; }

  Status copy_one(std::byte* to, const std::byte* from, std::size_t count) {
    if (count == 0 || to == from) return {};
    if (!stream_) stream_ = TUTTI_TRY(setup_.pool->take_stream(request_.device));
    return runtime_.check(runtime_.cudaMemcpyAsync(to, from, count * element_, kAnyDirection, stream_),
                          "copy between GPUs");
  }
  Status mark_copies() {
    if (!stream_) return {};
    copied_ = TUTTI_TRY(Event::make(runtime_));
    return copied_.record(stream_);
  }

  Moved copy() {
    stage_ = Stage::kCopying;
    if (is_reduction(request_.kind)) {
      TUTTI_TRY(add());
      return comm::Progress::kMoved;
    }
    for (int i = 1; comm::gets(request_, setup_.rank) && i <= setup_.size; ++i) {
      const int from = (setup_.rank + i) % setup_.size;
      if (!comm::gives(request_, from)) continue;
      const comm::Stretch s = TUTTI_TRY(stretch_from(from));
      if (s.count > 0) TUTTI_TRY(copy_one(out_at(s.out_begin), in_of(from) + s.in_begin * element_, s.count));
    }
    TUTTI_TRY(mark_copies());
    return comm::Progress::kMoved;
  }

  // The elements of the inputs that `rank` adds.
  comm::ElementRange added_by(int rank) const {
    if (gives_parts(request_.kind)) {
      const comm::Stretch s = comm::stretch_of(request_, rank, rank, rank);
      return {s.in_begin, s.in_begin + s.count};
    }
    if (request_.kind == Kind::kAllReduce) return comm::own_slice(request_.count, element_, rank, setup_.size);
    return {0, comm::gets(request_, rank) ? request_.count : 0};
  }

  Status add() {
    const auto [begin, end] = added_by(setup_.rank);
    if (begin == end) return {};
    std::vector<const void*> in;
    for (int r = 0; r < setup_.size; ++r) in.push_back(in_of(r) + begin * element_);
    sum_ = TUTTI_TRY(adder()->start({.device = request_.device,
                                     .dtype = request_.dtype,
                                     .op = request_.op,
                                     .in = in,
                                     .out = out_at(request_.kind == Kind::kAllReduce ? begin : 0),
                                     .count = end - begin}));
    return {};
  }

  // Of an all_reduce: copies the slices that the peers have added.
  Moved spread() {
    stage_ = Stage::kSpreading;
    for (int i = 1; i < setup_.size; ++i) {
      const int from = (setup_.rank + i) % setup_.size;
      const auto [begin, end] = added_by(from);
      if (begin == end) continue;
      const std::byte* const theirs = group_.open.at(from, notes_[std::size_t(from)].out);
      TUTTI_TRY(copy_one(out_at(begin), theirs + begin * element_, end - begin));
    }
    TUTTI_TRY(mark_copies());
    return comm::Progress::kMoved;
  }

  // Waits up to kPeersWait for the copies and sums. Returns whether they are done.
  bool is_quiet() {
    const auto is_busy = [&] {
      if (stream_ && runtime_.cudaStreamQuery(stream_) == kNotReady) return true;
      const auto ended = sum_ ? sum_->has_ended() : Result<bool>(true);
      return ended.ok() && !*ended;
    };
    for (const auto patience = Deadline::after(kPeersWait); is_busy(); std::this_thread::yield()) {
      runtime_.cudaGetLastError();
      if (patience.expired()) return false;
    }
    return true;
  }

  const IpcSetup setup_;
  const Runtime& runtime_;
  IpcGroup& group_;
  const Request request_;  // its splits belong to the submission
  const std::uint64_t sequence_;
  const std::size_t element_;
  Stage stage_ = Stage::kReady;
  CallNote mine_;
  std::vector<CallNote> notes_;  // by rank
  OpenedNote opened_;
  std::vector<OpenedNote> all_opened_;
  std::vector<std::pair<int, MemoryNote>> fresh_;  // memory that this call has opened
  std::vector<PartNote> my_parts_, their_parts_;   // by rank
  Event ready_, copied_;
  void* stream_ = nullptr;
  std::unique_ptr<SumInFlight> sum_;
  std::unique_ptr<comm::Operation> staged_;
  std::unique_ptr<comm::Operation> on_host_;  // destroyed first: uses the notes
};

}  // namespace

bool carries_by_ipc(const Request& request) {
  if (is_point_to_point(request.kind) || is_scan(request.kind)) return false;
  const bool overwrites =
      request.kind == Kind::kAllToAll && request.in && request.in == request.out;  // what peers read
  if (!is_reduction(request.kind)) return !overwrites;
  if (request.kind == Kind::kAllReduce && request.count * size_of(request.dtype) <= kMostStaged) return false;
  return adder() && adder()->adds(request.dtype, request.op);
}

Result<std::unique_ptr<comm::Operation>> start_by_ipc(const IpcSetup& setup, const Request& request,
                                                      std::uint64_t sequence, Event ready) {
  return std::unique_ptr<comm::Operation>(std::make_unique<IpcOperation>(setup, request, sequence, std::move(ready)));
}

}  // namespace tutti::cuda
