#pragma once
// One ncclComm_t that never blocks inside NCCL: it is opened non-blocking and aborted from a separate thread.
#include <atomic>
#include <memory>

#include "tutti/base/mutex.h"
#include "tutti/comm/backends/nccl/api.h"

namespace tutti::comm::nccl_engine {

// Threads: the driver of the group makes the calls, one at a time. abort() may be called from any thread.
class Communicator {
 public:
  // Every member calls this with its device current. Connects through the store and NCCL by the deadline.
  static Result<std::unique_ptr<Communicator>> open(const Api& api, const BackendSetup& setup);
  // Waits for the other members for at most a second.
  ~Communicator();
  Communicator(const Communicator&) = delete;

  // Calls NCCL. Fails with kAborted after abort().
  template <class Act>
  Status call(const char* doing, const Act& act) {
    const TimedMutexLock lock(state_->mutex);
    if (state_->aborted) return given_up();
    const ncclResult_t result = act(state_->comm);
    if (result == ncclSuccess || result == ncclInProgress) return {};
    return api_.failure(result, doing, state_->comm);
  }
  // Whether NCCL has accepted the last call. Until then no other call may be made.
  Result<bool> is_settled();
  // Ends operations in flight soon, also on the GPU, and prevents further calls of NCCL. Does not block, unless no
  // thread can be started.
  void abort();

 private:
  // Shared with the thread that aborts, which keeps it alive if NCCL is stuck.
  struct State {
    const Api* api = nullptr;
    TimedMutex mutex;  // held around calls
    ncclComm_t comm TUTTI_GUARDED_BY(mutex) = nullptr;
    std::atomic<bool> aborted{false};
  };
  static void abort_now(State& state);
  explicit Communicator(const Api& api) : api_(api), state_(std::make_shared<State>()) { state_->api = &api; }
  static Error given_up();
  Status settle(const BackendSetup& setup);

  const Api& api_;
  const std::shared_ptr<State> state_;
};

}  // namespace tutti::comm::nccl_engine
