#pragma once
// The backend "tutti" of torch.distributed: each verb becomes one or several Requests of a Group.
#include <torch/version.h>

#include <atomic>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "torch_work.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/group.h"

namespace tutti::python {

class TuttiBackend final : public c10d::Backend {
 public:
  using WorkHandle = c10::intrusive_ptr<c10d::Work>;

  // For init_process_group() and new_group(): the world of torch's default group, or a group within it.
  static c10::intrusive_ptr<TuttiBackend> create(const c10d::DistributedBackendOptions& options);

  TuttiBackend(Group group, std::chrono::milliseconds timeout);
  ~TuttiBackend() override;

  const std::string getBackendName() const override { return "tutti"; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
#if TORCH_VERSION_MINOR >= 15  // for its flight recorder
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_->ended_well.add(id, [hook = std::move(hook)](std::uint64_t key) { hook({.completionKey = key}); });
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_->ended_well.remove(id); }
  bool supportsAbortHooks() const override;
#endif
#ifdef C10D_BACKEND_HAS_HOOKS
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override { hooks_->failed.add(id, std::move(hook)); }
  void unregisterAbortHook(std::int64_t id) override { hooks_->failed.remove(id); }
#endif
  void startCoalescing() override;
  WorkHandle endCoalescing() override;

  WorkHandle broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkHandle allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkHandle allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkHandle allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) override;
  WorkHandle gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkHandle gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options)
#if TORCH_VERSION_MINOR >= 14
      override
#endif
      ;
  WorkHandle scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkHandle reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ReduceScatterOptions& options) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& options) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) override;
  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_rows,
                           std::vector<std::int64_t>& input_rows, const c10d::AllToAllOptions& options) override;
  WorkHandle alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkHandle barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkHandle send(Tensors& tensors, int peer, int tag) override;
  WorkHandle recv(Tensors& tensors, int peer, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;

  // Memory that the peers on this host read directly: collectives on it copy nothing.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long elements, at::TensorOptions options) override;

  Group group() const;          // throws after shutdown()
  Group group_or_none() const;  // empty after shutdown()

 private:
  using CallOwner = std::unique_ptr<Call>;
  std::chrono::milliseconds limit_of(std::chrono::milliseconds given) const;  // that of the group, if none is given
  template <class OptionsOfVerb>
  WorkHandle start(CallOwner call, const OptionsOfVerb& options);
  WorkHandle start(CallOwner call, bool asynchronous, std::chrono::milliseconds limit, bool is_collective);
  WorkHandle receive(CallOwner call, Tensors& tensors, int peer, int tag);
  void add_all_reduce(Call& call, const at::Tensor& tensor, const c10d::ReduceOp& op);
  void add_all_gather(Call& call, const Tensors& outputs, const at::Tensor& input);
  void add_all_gather_single(Call& call, const at::Tensor& output, const at::Tensor& input);
  void add_reduce_scatter_single(Call& call, const at::Tensor& output, const at::Tensor& input,
                                 const c10d::ReduceOp& op);
  void require_same_own_part(const Request& all_to_all) const;
  std::vector<std::size_t> splits_of(const at::Tensor& tensor, const std::vector<std::int64_t>& rows) const;
  void require_no_fork() const;
  void sweep();
  void leave();

  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};
  const int forks_;  // count_of_forks() of the process that made this
  const std::shared_ptr<HooksOfCalls> hooks_ = std::make_shared<HooksOfCalls>();
  mutable Mutex mutex_;
  Group group_ TUTTI_GUARDED_BY(mutex_);  // empty after shutdown()
  // Keeps the buffers, whatever becomes of the handles.
  std::vector<std::shared_ptr<Submitted>> under_way_ TUTTI_GUARDED_BY(mutex_);
  // Of the threads that are between startCoalescing() and endCoalescing().
  std::map<std::thread::id, std::vector<std::shared_ptr<Submitted>>> coalesced_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::python
