// Transfers GPU memory through pinned memory in pieces (pieces.h), with a few in flight. While the CPU's backend
// carries piece k, piece k + 1 is copied from the GPU and piece k - 1 is copied back. So the pinned memory of a call is
// bounded, and for large buffers only the slowest of the three steps counts.
//
//    GPU -> pinned   on one stream, behind the event that signals that the caller's data are ready
//    the call        by the CPU's backend, on this piece; in place in the pinned memory
//    pinned -> GPU   on another stream, so that both directions of the bus are used
//
// Nothing here waits: step() asks events whether they have passed. Every operation has its own streams. On a shared
// stream a copy could be queued behind a copy that waits for a caller, which in turn waits for this operation.
//
// Sends and receives are one piece. A receive starts on the host at once. A send starts when its copy is done, but in
// the order of the calls, because two copies may become ready between two polls.
#include "tutti/comm/cuda/staged_operation.h"

#include <thread>
#include <utility>

#include "tutti/base/deadline.h"
#include "tutti/base/log.h"
#include "tutti/comm/cuda/pieces.h"

namespace tutti::cuda {
namespace {

constexpr std::size_t kStagedPieceBytes = 4 << 20;
constexpr std::size_t kInFlight = 3;
constexpr Duration kCopyLookAgain = std::chrono::microseconds(50);
constexpr Duration kLetGo = std::chrono::seconds(5);

// Memory that holds one piece at a time.
struct Slot {
  Pinned memory;
  StagedPiece piece;
  Event copied;  // the copy in, then the copy out
};

class StagedOperation final : public comm::Operation {
 public:
  StagedOperation(const StagedSetup& setup, const Request& request, std::uint64_t sequence)
      : setup_(setup),
        runtime_(*setup.runtime),
        device_(request.device),
        request_(request),
        sequence_(sequence),
        pieces_(request, setup.rank, setup.size, kStagedPieceBytes),
        number_(pieces_.needs_agreement() ? 0 : pieces_.number()) {
    if (takes_turns()) my_turn_ = (*setup_.turns)[request.root].take();
  }

  ~StagedOperation() override {
    on_host_.reset();  // releases the pinned memory
    const OnDevice current(runtime_, device_);
    if (!is_quiet()) {
      log::warn("a GPU still uses the buffers of " + to_string(request_) + " " +
                std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kLetGo).count()) +
                " s after the call has ended; their staging memory is leaked");
      return;
    }
    for (Slot& slot : slots_) setup_.pool->give_back(slot.memory);
    setup_.pool->give_back_stream(device_, from_device_);
    setup_.pool->give_back_stream(device_, to_device_);
  }

  Status begin(Event ready) {
    const OnDevice current(runtime_, device_);
    ready_ = std::move(ready);
    from_device_ = TUTTI_TRY(setup_.pool->take_stream(device_));
    to_device_ = TUTTI_TRY(setup_.pool->take_stream(device_));
    TUTTI_TRY(runtime_.check(runtime_.cudaStreamWaitEvent(from_device_, ready_.get(), 0), "order two streams"));
    // The caller's reads of the old contents must finish before the result overwrites them.
    TUTTI_TRY(runtime_.check(runtime_.cudaStreamWaitEvent(to_device_, ready_.get(), 0), "order two streams"));
    const std::size_t slots = pieces_.needs_agreement() ? kInFlight : std::min(kInFlight, number_);
    const std::size_t bytes = pieces_.largest();
    for (std::size_t i = 0; i < slots; ++i) {
      slots_.emplace_back();
      slots_.back().memory = TUTTI_TRY(setup_.pool->take(bytes));
      slots_.back().copied = TUTTI_TRY(Event::make(runtime_));
    }
    if (request_.kind == Kind::kRecv) {  // receives match in the order of the calls, so start it now
      slots_[0].piece = pieces_.make(0);
      TUTTI_TRY(start_on_host(slots_[0]));
    }
    return {};
  }

  Result<comm::Progress> step() override {
    const OnDevice current(runtime_, device_);
    auto progress = advance();
    if (progress.ok()) return progress;
    Error error = progress.error();
    error.operation.clear();  // it describes a piece; the group adds the call
    return error;
  }

  std::optional<bool> awaits_this_core() const override { return on_host_ ? on_host_->awaits_this_core() : false; }
  void blockers(comm::Blockers& blockers) const override {
    if (on_host_) on_host_->blockers(blockers);
    if (on_host_ && copied_in_ <= carried_ && copied_out_ == carried_) return;
    blockers.on_device = !on_host_;
    blockers.look_again = kCopyLookAgain;
  }

 private:
  Result<comm::Progress> advance() {
    if (number_ == 0) return agree();
    bool moved = false;
    while (sent_in_ < number_ && sent_in_ < copied_out_ + slots_.size()) {
      TUTTI_TRY(copy_in(sent_in_++));
      moved = true;
    }
    while (copied_in_ < sent_in_ && TUTTI_TRY(slot(copied_in_).copied.has_passed())) ++copied_in_, moved = true;
    if (carried_ < number_ && !on_host_ && copied_in_ > carried_ && is_my_turn()) {
      TUTTI_TRY(start_on_host(slot(carried_)));
      moved = true;
    }
    if (on_host_) {  // a receive may run before `ready` has passed; its copy to the GPU waits for `ready`
      const comm::Progress progress = TUTTI_TRY(on_host_->step());
      moved |= progress != comm::Progress::kBlocked;
      if (progress == comm::Progress::kDone) {
        on_host_.reset();
        TUTTI_TRY(copy_out(carried_++));
      }
    }
    while (copied_out_ < carried_ && TUTTI_TRY(slot(copied_out_).copied.has_passed())) ++copied_out_, moved = true;
    if (copied_out_ == number_) return comm::Progress::kDone;
    return moved ? comm::Progress::kMoved : comm::Progress::kBlocked;
  }

  // Agrees on the largest number of pieces of all ranks.
  Result<comm::Progress> agree() {
    if (!on_host_) {
      agreed_ = std::int64_t(pieces_.number());
      on_host_ = TUTTI_TRY(setup_.start_on_host({.kind = Kind::kAllReduce,
                                                 .dtype = DType::kI64,
                                                 .op = ReduceOp::kMax,
                                                 .in = &agreed_,
                                                 .out = &agreed_,
                                                 .count = 1},
                                                sequence_));
    }
    const comm::Progress progress = TUTTI_TRY(on_host_->step());
    if (progress != comm::Progress::kDone) return progress;
    on_host_.reset();
    number_ = std::size_t(agreed_);
    return comm::Progress::kMoved;
  }

  Slot& slot(std::size_t piece) { return slots_[piece % slots_.size()]; }

  bool takes_turns() const { return request_.kind == Kind::kSend && setup_.turns; }
  bool is_my_turn() { return !takes_turns() || (*setup_.turns)[request_.root].begin(my_turn_); }

  Status start_on_host(Slot& slot) {
    Request& r = slot.piece.request;
    r.in_splits = slot.piece.in_splits;
    r.out_splits = slot.piece.out_splits;
    r.in = slot.piece.reads || r.kind == Kind::kBroadcast ? slot.memory.data + slot.piece.in : nullptr;
    r.out = slot.piece.writes ? slot.memory.data + slot.piece.out : nullptr;
    on_host_ = TUTTI_TRY(setup_.start_on_host(r, sequence_));
    return {};
  }

  Status copy(std::byte* to, const std::byte* from, std::size_t bytes, void* stream, const char* doing) const {
    return runtime_.check(runtime_.cudaMemcpyAsync(to, from, bytes, kAnyDirection, stream), doing);
  }
  Status copy_in(std::size_t index) {
    Slot& s = slot(index);
    if (request_.kind != Kind::kRecv) s.piece = pieces_.make(index);
    const auto* const from =
        static_cast<const std::byte*>(request_.kind == Kind::kBroadcast ? request_.out : request_.in);
    const std::size_t element = size_of(request_.dtype);
    for (const Run& run : s.piece.to_read)
      TUTTI_TRY(copy(s.memory.data + run.bytes_at, from + run.elements_from * element, run.count * element,
                     from_device_, "copy from the GPU"));
    return s.copied.record(from_device_);
  }
  Status copy_out(std::size_t index) {
    Slot& s = slot(index);
    auto* const to = static_cast<std::byte*>(request_.out);
    const std::size_t element = size_of(request_.dtype);
    for (const Run& run : s.piece.to_write)
      TUTTI_TRY(copy(to + run.elements_from * element, s.memory.data + run.bytes_at, run.count * element, to_device_,
                     "copy to the GPU"));
    return s.copied.record(to_device_);
  }

  // Waits up to kLetGo for the copies. Returns whether they are done.
  bool is_quiet() const {
    const auto patience = Deadline::after(kLetGo);
    for (void* const stream : {from_device_, to_device_})
      while (stream && runtime_.cudaStreamQuery(stream) == kNotReady) {
        runtime_.cudaGetLastError();
        if (patience.expired()) return false;
        std::this_thread::yield();
      }
    return true;
  }

  const StagedSetup setup_;
  const Runtime& runtime_;
  const int device_;
  const Request request_;  // its splits belong to the submission
  const std::uint64_t sequence_;
  const Pieces pieces_;
  std::size_t number_;  // number of pieces; 0: not agreed on yet
  std::int64_t agreed_ = 0;
  std::uint64_t my_turn_ = 0;  // for a send
  Event ready_;
  void *from_device_ = nullptr, *to_device_ = nullptr;
  std::vector<Slot> slots_;
  // Pieces that have reached each step so far. Each number is at most the one before it.
  std::size_t sent_in_ = 0, copied_in_ = 0, carried_ = 0, copied_out_ = 0;
  std::unique_ptr<comm::Operation> on_host_;  // destroyed first: uses a slot
};

}  // namespace

Result<std::unique_ptr<comm::Operation>> start_staged(const StagedSetup& setup, const Request& request,
                                                      std::uint64_t sequence, Event ready) {
  auto operation = std::make_unique<StagedOperation>(setup, request, sequence);
  TUTTI_TRY(operation->begin(std::move(ready)));
  return std::unique_ptr<comm::Operation>(std::move(operation));
}

}  // namespace tutti::cuda
