#pragma once
// The handle that torch.distributed gets of a call.
#include <ATen/core/ivalue.h>
#include <torch/version.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "call.h"
#include "errors.h"
#include "hooks.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/work.h"

namespace tutti::python {

// A call that has been submitted. Shared by its handle, its future and the backend, which keeps the buffers of calls
// whose handle was dropped. Threads: any.
class Submitted : public std::enable_shared_from_this<Submitted> {
 public:
  using OnEnd = std::function<void(const Status&)>;  // once, without a lock
  Submitted(std::unique_ptr<Call> call, Works works, OnEnd on_end)
      : call_(std::move(call)), works_(std::move(works)), on_end_(std::move(on_end)) {}
  // One that consists of other calls.
  Submitted(std::unique_ptr<Call> call, std::vector<std::shared_ptr<Submitted>> parts, OnEnd on_end)
      : call_(std::move(call)), parts_(std::move(parts)), on_end_(std::move(on_end)) {}
  // One that has ended.
  Submitted(std::unique_ptr<Call> call, Status status, OnEnd on_end)
      : call_(std::move(call)), on_end_(std::move(on_end)) {
    settle(std::move(status));
  }

  bool done() const;
  // Waits for what is not done, and copies the results to where they belong.
  void complete();
  // complete(), unless `limit` passes before: false.
  bool complete_within(Duration limit);
  bool is_settled() const { return settled_.load(); }
  const Status& status() const { return status_; }  // once settled
  const Call& call() const { return *call_; }
  c10::intrusive_ptr<c10::ivalue::Future> future();
  std::exception_ptr exception() const;  // once settled; null: it succeeded

 private:
  void settle(Status status);
  std::vector<Work> all_works() const;
  void fulfil(c10::ivalue::Future& future) const;

  const std::unique_ptr<Call> call_;
  const Works works_;
  const std::vector<std::shared_ptr<Submitted>> parts_;
  const OnEnd on_end_;
  std::atomic<bool> settled_{false};
  Status status_;
  Mutex mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_ TUTTI_GUARDED_BY(mutex_);
};

class TorchWork final : public c10d::Work {
 public:
  TorchWork(int rank, const Call& call, std::uint64_t sequence, std::chrono::milliseconds limit,
            std::shared_ptr<const HooksOfCalls> hooks)
      : c10d::Work(rank, call.type, call.title,
                   call.inputs.empty() ? std::nullopt : std::optional<Tensors>(call.inputs)),
        sequence_(sequence),
        limit_(limit),
        hooks_(std::move(hooks)) {}
  void begin(std::shared_ptr<Submitted> submitted) { submitted_ = std::move(submitted); }
  Submitted::OnEnd on_end() const;  // for begin()

  bool isCompleted() override;
  bool isSuccess() const override { return submitted_->is_settled() && submitted_->status().ok(); }
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  Tensors result() override { return submitted_->call().results; }
  void synchronize() override {}  // a call has ended when its results can be read, on a GPU by every stream
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return submitted_->future(); }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const { return limit_; }  // overrides from torch 2.14 on
#if TORCH_VERSION_MINOR >= 15
  std::uint64_t getCompletionKey() const override { return key_; }
#endif

 private:
  static std::uint64_t next_key();

  std::shared_ptr<Submitted> submitted_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds limit_;
  const std::shared_ptr<const HooksOfCalls> hooks_;
  const std::uint64_t key_ = next_key();  // that no other handle of this process has
};

}  // namespace tutti::python
