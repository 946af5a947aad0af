#pragma once
// One ncclComm_t, never waited for inside NCCL: opened without blocking, aborted from a thread of its own.
#include <atomic>
#include <memory>
#include <mutex>

#include "tutti/comm/backends/nccl/api.h"

namespace tutti::nccl_engine {

// Threads: calls are made by the driver of the group, one at a time; abort() comes from any.
class Communicator {
 public:
  // Every member calls; meets the others in the store and in NCCL by the deadline. The device is current.
  static Result<std::unique_ptr<Communicator>> open(const Api& api, const BackendSetup& setup);
  // Takes leave of the others, a second at most.
  ~Communicator();
  Communicator(const Communicator&) = delete;

  // Calls NCCL. kAborted once abort() was called.
  template <class Act>
  Status call(const char* doing, const Act& act) {
    std::unique_lock lock(state_->mutex);
    if (state_->aborted) return given_up();
    const ncclResult_t result = act(state_->comm);
    if (result == ncclSuccess || result == ncclInProgress) return {};
    return api_.failure(result, doing, state_->comm);
  }
  // Whether what was called has been taken over: until then nothing else may be called.
  Result<bool> is_settled();
  // What is under way ends soon, on the GPU as well; no call reaches NCCL any more. Returns at once.
  void abort();

 private:
  // Outlives this where NCCL is stuck: held by the thread that aborts.
  struct State {
    const Api* api = nullptr;
    ncclComm_t comm = nullptr;
    std::timed_mutex mutex;  // around calls
    std::atomic<bool> aborted{false};
  };
  explicit Communicator(const Api& api) : api_(api), state_(std::make_shared<State>()) { state_->api = &api; }
  static Error given_up();
  Status settle(const BackendSetup& setup);

  const Api& api_;
  const std::shared_ptr<State> state_;
};

}  // namespace tutti::nccl_engine
