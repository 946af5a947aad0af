// The sender sends a note of its memory in place of the elements, once the work before the call on its stream is done.
// The receiver opens the memory, copies, and answers, which ends the send (links/point_to_point.h carries notes and
// answers). It declines
//
//   if its own buffer is on the host, or an earlier receive of another tag waits: PointToPoint declines then
//   if it cannot open the memory, or computes on another GPU than at its first call
//   if its stream does not reach the call soon. That may need what the sender does after the send.
//
// After that the message is staged: a StagedOperation moves the elements between the GPU and pinned memory, and steps
// the same send or receive on the host.
//
// Each pair of ranks has memory of its own that is open. Unlike in a collective, the receiver alone decides what stays
// open, and learns from the notes of its peer what that has freed.
#include "tutti/comm/cuda/ipc_message.h"

#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "tutti/base/deadline.h"
#include "tutti/base/log.h"
#include "tutti/transport/shm/shm_link.h"

namespace tutti::cuda {
namespace {

constexpr Duration kLookAtMessage = std::chrono::microseconds(50);
constexpr Duration kCopysWait = std::chrono::seconds(5);
// For the receiver's stream to reach the call: about what it takes to stage a large message.
constexpr Duration kStreamsWait = std::chrono::milliseconds(10);

struct MessageNote {
  MemoryNote memory;
  // Allocations that the sender has freed, and the receiver may have open; 0: none. Two, because a message adds up to
  // one, and those of declined notes are named again.
  std::array<std::uint64_t, 2> freed{};
};
static_assert(sizeof(MessageNote) <= sizeof(comm::Note));

Request on_host(const Request& request) {
  Request r = request;
  r.device = kHost;
  r.stream = nullptr;
  return r;
}

// A message that ends up in host memory if it has to.
class IpcMessage : public comm::Operation {
 public:
  IpcMessage(const MessageSetup& setup, const Request& request, std::uint64_t sequence, Event ready)
      : setup_(setup), runtime_(*setup.runtime), request_(request), sequence_(sequence), ready_(std::move(ready)) {}

  Result<comm::Progress> step() override {
    const OnDevice current(runtime_, request_.device);
    if (staged_) return staged_->step();
    auto progress = advance();
    if (progress.ok()) return progress;
    Error error = progress.error();
    error.operation.clear();  // it describes the host's part; the group adds the call
    return error;
  }
  std::optional<bool> awaits_this_core() const override { return staged_ ? staged_->awaits_this_core() : false; }
  void blockers(comm::Blockers& blockers) const override {
    if (staged_) return staged_->blockers(blockers);
    if (const comm::Operation* const host = awaited_on_host()) return host->blockers(blockers);
    blockers.on_device = true;
    blockers.look_again = kLookAtMessage;
  }

 protected:
  using Moved = Result<comm::Progress>;
  virtual Moved advance() = 0;
  virtual const comm::Operation* awaited_on_host() const = 0;  // null: a GPU is awaited

  Moved stage(StartOnHost start_on_host) {
    staged_ = TUTTI_TRY(start_staged({.runtime = &runtime_,
                                      .pool = setup_.pool,
                                      .start_on_host = std::move(start_on_host),
                                      .rank = setup_.rank,
                                      .size = setup_.size},
                                     request_, sequence_, std::move(ready_)));
    return comm::Progress::kMoved;
  }

  const MessageSetup setup_;
  const Runtime& runtime_;
  const Request request_;
  const std::uint64_t sequence_;
  Event ready_;

 private:
  std::unique_ptr<comm::Operation> staged_;
};

class IpcSend final : public IpcMessage {
 public:
  IpcSend(const MessageSetup& setup, const Request& request, std::uint64_t sequence, Event ready,
          const MemoryNote& mine)
      : IpcMessage(setup, request, sequence, std::move(ready)),
        mine_(mine),
        turn_((*setup.turns)[request.root].take()) {}

 private:
  Moved advance() override {
    if (!send_) {
      if (!TUTTI_TRY(ready_.has_passed()) || !(*setup_.turns)[request_.root].begin(turn_))
        return comm::Progress::kBlocked;
      send_ = setup_.messages->send(on_host(request_), sequence_, note());
    }
    const comm::Progress progress = TUTTI_TRY(send_->step());
    if (progress == comm::Progress::kDone)  // a receiver that declines may not have read the note
      for (const std::uint64_t id : freed_) open_memory().close_freed(IpcPairs::kMine, id);
    if (!send_->needs_elements()) return progress;
    return stage([this](const Request& r, std::uint64_t) -> Result<std::unique_ptr<comm::Operation>> {
      send_->give(r.in);
      return std::unique_ptr<comm::Operation>(std::move(send_));
    });
  }

  OpenMemory& open_memory() { return setup_.pairs->with(request_.root); }

  comm::Note note() {
    for (std::uint64_t& id : freed_) id = open_memory().freed_here();
    const MessageNote content{.memory = mine_, .freed = freed_};
    comm::Note note{};
    std::memcpy(note.data(), &content, sizeof content);
    return note;
  }

  const comm::Operation* awaited_on_host() const override { return send_.get(); }

  const MemoryNote mine_;
  const std::uint64_t turn_;
  std::array<std::uint64_t, 2> freed_{};   // MessageNote::freed
  std::unique_ptr<comm::NotedSend> send_;  // null: not started, or moved into the staged operation
};

class IpcRecv final : public IpcMessage {
 public:
  IpcRecv(const MessageSetup& setup, const Request& request, std::uint64_t sequence, Event ready)
      : IpcMessage(setup, request, sequence, std::move(ready)),
        recv_(setup.messages->recv(on_host(request), sequence)) {}

  ~IpcRecv() override {
    if (!stream_) return;
    const OnDevice current(runtime_, request_.device);
    const auto patience = Deadline::after(kCopysWait);
    for (; runtime_.cudaStreamQuery(stream_) == kNotReady && !patience.expired(); std::this_thread::yield())
      runtime_.cudaGetLastError();
    if (!patience.expired()) {
      setup_.pool->give_back_stream(request_.device, stream_);
      return;
    }
    log::warn("a GPU still copies " + to_string(request_) + " " +
              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kCopysWait).count()) +
              " s after the call has ended; the memory of the sender stays open");
    setup_.pairs->with(sender_).abandon();
  }

 private:
  Moved advance() override {
    if (copied_) return finish_copy();
    const comm::Progress progress = TUTTI_TRY(recv_->step());
    switch (recv_->arrived()) {
      case comm::NotedRecv::Arrived::kNothing:
        return progress;
      case comm::NotedRecv::Arrived::kNote:
        return copy();
      case comm::NotedRecv::Arrived::kElements:
        break;
    }
    return stage([this](const Request& r, std::uint64_t) -> Result<std::unique_ptr<comm::Operation>> {
      recv_->put_into(r.out);
      return std::unique_ptr<comm::Operation>(std::move(recv_));
    });
  }

  Moved copy() {
    if (!from_) {
      sender_ = recv_->sender();
      came_ = now();
      auto opened = open();
      if (!opened.ok()) {
        setup_.pairs->report("memory of rank " + std::to_string(sender_) + ": " + opened.error().detail);
        return decline();
      }
      from_ = *opened;
    }
    if (!TUTTI_TRY(ready_.has_passed())) return now() - came_ < kStreamsWait ? comm::Progress::kBlocked : decline();
    stream_ = TUTTI_TRY(setup_.pool->take_stream(request_.device));
    TUTTI_TRY(runtime_.check(
        runtime_.cudaMemcpyAsync(request_.out, from_, request_.count * size_of(request_.dtype), kAnyDirection, stream_),
        "copy between GPUs"));
    copied_ = TUTTI_TRY(Event::make(runtime_));
    TUTTI_TRY(copied_.record(stream_));
    return comm::Progress::kMoved;
  }
  Moved finish_copy() {
    if (!TUTTI_TRY(copied_.has_passed())) return comm::Progress::kBlocked;
    TUTTI_TRY(recv_->take());
    return comm::Progress::kDone;
  }
  Moved decline() {
    TUTTI_TRY(recv_->decline());
    return comm::Progress::kMoved;
  }

  // Where the message is in the sender's memory.
  Result<const std::byte*> open() {
    MessageNote note;
    std::memcpy(&note, recv_->note().data(), sizeof note);
    OpenMemory& open = setup_.pairs->with(sender_);
    for (const std::uint64_t id : note.freed) open.close_freed(IpcPairs::kTheirs, id);
    if (const int first = open.device_for(request_.device); first != request_.device)
      return Error{.code = Code::kUnsupported,
                   .detail = "the receive is on cuda:" + std::to_string(request_.device) +
                             ", the first one was on cuda:" + std::to_string(first)};
    switch (open.find(IpcPairs::kTheirs, note.memory)) {
      case OpenMemory::Known::kUnusable:
        return Error{.code = Code::kUnsupported, .detail = "it could not be opened before"};
      case OpenMemory::Known::kNew:
        if (const Status opened = open.open(IpcPairs::kTheirs, note.memory); !opened.ok()) {
          open.give_up(IpcPairs::kTheirs, note.memory);
          return opened.error();
        }
        break;
      case OpenMemory::Known::kOpen:
        break;
    }
    return open.at(IpcPairs::kTheirs, note.memory);
  }

  const comm::Operation* awaited_on_host() const override {
    const bool on_device = copied_ || recv_->arrived() == comm::NotedRecv::Arrived::kNote;
    return on_device ? nullptr : recv_.get();
  }

  std::unique_ptr<comm::NotedRecv> recv_;  // null: moved into the staged operation
  int sender_ = -1;
  Clock::time_point came_{};
  const std::byte* from_ = nullptr;
  void* stream_ = nullptr;
  Event copied_;
};

}  // namespace

void IpcPairs::report(const std::string& why) {
  if (!std::exchange(has_reported_, true))
    log::info("group " + group_ + " moves a message of GPU memory through the CPU: " + why);
}

bool is_large_message(const Request& request) {
  return is_point_to_point(request.kind) && request.count > transport::ShmLink::kCapacity / size_of(request.dtype);
}

Result<std::unique_ptr<comm::Operation>> start_message_by_ipc(const MessageSetup& setup, const Request& request,
                                                              std::uint64_t sequence, Event& ready) {
  using Started = std::unique_ptr<comm::Operation>;
  if (request.kind == Kind::kRecv)
    return Started(std::make_unique<IpcRecv>(setup, request, sequence, std::move(ready)));
  OpenMemory& open = setup.pairs->with(request.root);
  const OnDevice current(*setup.runtime, request.device);
  const auto mine = open.share(request.in);
  if (!mine.ok()) {
    setup.pairs->report("this rank's: " + mine.error().detail);
    return Started();
  }
  if (open.find(IpcPairs::kMine, *mine) == OpenMemory::Known::kNew) TUTTI_TRY(open.open(IpcPairs::kMine, *mine));
  return Started(std::make_unique<IpcSend>(setup, request, sequence, std::move(ready), *mine));
}

}  // namespace tutti::cuda
