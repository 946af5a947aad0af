#pragma once
// How a group carries the calls whose buffers are on a GPU: by NCCL where the group was opened with it and NCCL has the
// verb, the type and the op; else staged through pinned memory by whatever carries CPU memory.
#include <memory>
#include <string>

#include "tutti/comm/backends/backend.h"
#include "tutti/comm/cuda/staged_operation.h"

namespace tutti::cuda {

class Calls {
 public:
  struct Setup {
    int rank = 0, size = 1;
    Heap* heap = nullptr;  // of the rank; null: none
    StartOnHost start_on_host;
  };
  explicit Calls(Setup setup) : setup_(std::move(setup)) {}
  ~Calls();
  Calls(const Calls&) = delete;

  // NCCL, opened on all members; this rank's buffers are on `device`. Before the first call.
  Status carry_by(std::unique_ptr<Backend> nccl, int device);

  // Takes note of where the caller's stream stands, in the caller's thread. Finds what can be wrong about the device.
  Result<Event> mark(const Request& request) const;
  // The driver of the group, one call at a time. `request` is valid; its splits live until the operation has ended.
  Result<std::unique_ptr<Operation>> start(const Request& request, std::uint64_t sequence, Event ready);
  // A group of one: does it, with the limit given.
  Status run_alone(const Request& request, Duration limit);
  // The group has failed: what is in flight ends soon. Any thread.
  void abort();
  bool is_by_nccl(const Request& request) const { return nccl_ && nccl_->carries(request); }
  bool has_nccl() const { return nccl_ != nullptr; }

 private:
  Result<std::shared_ptr<Pool>> pool(const Runtime& runtime);

  const Setup setup_;
  std::shared_ptr<Pool> pool_;  // the driver's
  std::map<int, SendTurns> turns_;
  int nccl_device_ = kHost;
  void* nccl_stream_ = nullptr;  // all that NCCL does for the group, in the order of the calls
  std::unique_ptr<Backend> nccl_;
};

}  // namespace tutti::cuda
