#include "tutti/comm/cuda/calls.h"

#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/comm/layout.h"

namespace tutti::cuda {
namespace {

constexpr Duration kLookAgain = std::chrono::microseconds(50);

// A collective of a group of one: a copy on the device.
class DeviceCopy final : public comm::Operation {
 public:
  DeviceCopy(const Runtime& runtime, std::shared_ptr<Pool> pool, int device)
      : runtime_(runtime), pool_(std::move(pool)), device_(device) {}
  ~DeviceCopy() override {
    pool_->give_back_stream(device_, stream_);
  }  // its work is done, or finishes without this object

  Status begin(const Request& request, const Event& ready) {
    const OnDevice current(runtime_, device_);
    stream_ = TUTTI_TRY(pool_->take_stream(device_));
    copied_ = TUTTI_TRY(Event::make(runtime_));
    TUTTI_TRY(runtime_.check(runtime_.cudaStreamWaitEvent(stream_, ready.get(), 0), "order two streams"));
    const std::size_t bytes = comm::extent_of(request, 0, 1)->out * size_of(request.dtype);
    if (bytes > 0 && request.in && request.in != request.out)
      TUTTI_TRY(runtime_.check(runtime_.cudaMemcpyAsync(request.out, request.in, bytes, kAnyDirection, stream_),
                               "copy on the GPU"));
    return copied_.record(stream_);
  }
  Result<comm::Progress> step() override {
    return TUTTI_TRY(copied_.has_passed()) ? comm::Progress::kDone : comm::Progress::kBlocked;
  }
  void blockers(comm::Blockers& blockers) const override {
    blockers.on_device = true;
    blockers.look_again = kLookAgain;
  }

 private:
  const Runtime& runtime_;
  const std::shared_ptr<Pool> pool_;
  const int device_;
  void* stream_ = nullptr;
  Event copied_;
};

}  // namespace

Calls::~Calls() {
  nccl_.reset();
  if (nccl_stream_)
    if (const auto r = runtime(); r.ok()) (*r)->cudaStreamDestroy(nccl_stream_);
}

Status Calls::carry_by(std::unique_ptr<comm::Backend> nccl, int device) {
  const Runtime* const r = TUTTI_TRY(runtime_with(device));
  const OnDevice current(*r, device);
  TUTTI_TRY(r->check(r->cudaStreamCreateWithFlags(&nccl_stream_, kNonBlocking), "make a stream"));
  nccl_device_ = device;
  nccl_ = std::move(nccl);
  return {};
}

Result<Event> Calls::mark(const Request& request) const {
  const Runtime* const r = TUTTI_TRY(runtime_with(request.device));
  if (is_by_nccl(request) && request.device != nccl_device_)
    return invalid_argument(detail::words("the buffers are on cuda:", request.device,
                                          ", but the engine nccl was opened on cuda:", nccl_device_, " for this rank"),
                            "Group::device() says where a rank computes; TUTTI_DEVICE sets it");
  const OnDevice current(*r, request.device);
  Event event = TUTTI_TRY(Event::make(*r));
  TUTTI_TRY(event.record(request.stream));
  return event;
}

Result<std::shared_ptr<Pool>> Calls::pool(const Runtime& runtime) {
  if (!pool_) pool_ = std::make_shared<Pool>(runtime, setup_.heap);
  return pool_;
}

Result<std::unique_ptr<comm::Operation>> Calls::start(const Request& request, std::uint64_t sequence, Event ready) {
  const Runtime* const r = TUTTI_TRY(runtime());
  if (is_by_nccl(request)) {
    const OnDevice current(*r, nccl_device_);
    TUTTI_TRY(r->check(r->cudaStreamWaitEvent(nccl_stream_, ready.get(), 0), "order two streams"));
    Request ordered = request;
    ordered.stream = nccl_stream_;
    return nccl_->start(ordered, sequence);
  }
  if (may_have_note(request))
    if (auto started = TUTTI_TRY(start_message(request, sequence, ready))) return started;
  if (!starts_by_ipc(request)) return stage(request, sequence, std::move(ready));
  if (!ipc_) ipc_ = std::make_shared<IpcGroup>(setup_.group, setup_.rank, setup_.size);
  const IpcSetup setup{
      .runtime = r,
      .pool = TUTTI_TRY(pool(*r)),
      .group = ipc_,
      .start_on_host = setup_.start_on_host,
      .start_staged = [this, request, sequence](Event passed) { return stage(request, sequence, std::move(passed)); },
      .rank = setup_.rank,
      .size = setup_.size};
  return start_by_ipc(setup, request, sequence, std::move(ready));
}

bool Calls::may_have_note(const Request& request) const {
  if (!is_large_message(request) || !setup_.messages.reach) return false;
  if (request.root != kAnySource) return setup_.messages.reach(request.root);
  for (int r = 0; r < setup_.size; ++r)
    if (r != setup_.rank && setup_.messages.reach(r)) return true;
  return false;
}

Result<std::unique_ptr<comm::Operation>> Calls::start_message(const Request& request, std::uint64_t sequence,
                                                              Event& ready) {
  const Runtime* const r = TUTTI_TRY(runtime());
  if (!pairs_) pairs_ = std::make_shared<IpcPairs>(setup_.group);
  return start_message_by_ipc({.runtime = r,
                               .pool = TUTTI_TRY(pool(*r)),
                               .pairs = pairs_,
                               .messages = &setup_.messages,
                               .turns = &turns_,
                               .rank = setup_.rank,
                               .size = setup_.size},
                              request, sequence, ready);
}

Result<std::unique_ptr<comm::Operation>> Calls::stage(const Request& request, std::uint64_t sequence, Event ready) {
  const Runtime* const r = TUTTI_TRY(runtime());
  const StagedSetup setup{.runtime = r,
                          .pool = TUTTI_TRY(pool(*r)),
                          .start_on_host = setup_.start_on_host,
                          .rank = setup_.rank,
                          .size = setup_.size,
                          .turns = &turns_};
  return start_staged(setup, request, sequence, std::move(ready));
}

Status Calls::run_alone(const Request& request, Duration limit) {
  const Runtime* const r = TUTTI_TRY(runtime());
  Event ready = TUTTI_TRY(mark(request));
  std::unique_ptr<comm::Operation> operation;
  if (is_reduction(request.kind) && request.op == ReduceOp::kPremulSum) {
    operation = TUTTI_TRY(start(request, 0, std::move(ready)));
  } else {
    auto copy = std::make_unique<DeviceCopy>(*r, TUTTI_TRY(pool(*r)), request.device);
    TUTTI_TRY(copy->begin(request, ready));
    operation = std::move(copy);
  }
  for (const auto deadline = Deadline::after(limit);;) {
    const comm::Progress progress = TUTTI_TRY(operation->step());
    if (progress == comm::Progress::kDone) return {};
    if (deadline.expired()) return deadline.error(detail::words("still waiting for cuda:", request.device));
    if (progress == comm::Progress::kBlocked) std::this_thread::yield();
  }
}

void Calls::abort() {
  if (nccl_) nccl_->abort();
}

}  // namespace tutti::cuda
