#pragma once
// Runs the calls of a group whose buffers are on a GPU. NCCL carries a call if the group was opened with NCCL and NCCL
// has the verb, type and op. Otherwise ranks of one host copy a collective or a large message directly between their
// GPUs, if CUDA lets them. What is left is staged through pinned memory by the path that carries CPU memory.
#include <memory>
#include <string>

#include "tutti/comm/backends/backend.h"
#include "tutti/comm/cuda/ipc_message.h"
#include "tutti/comm/cuda/ipc_operation.h"
#include "tutti/comm/cuda/staged_operation.h"

namespace tutti::cuda {

class Calls {
 public:
  struct Setup {
    int rank = 0, size = 1;
    std::string group;           // its name
    bool tries_ipc = false;      // all members are on this host, and may copy collectives directly
    NotedMessages messages{};    // to the members on this host, from which messages may be copied directly
    comm::Heap* heap = nullptr;  // of the rank; null: none
    StartOnHost start_on_host;
  };
  explicit Calls(Setup setup) : setup_(std::move(setup)) {}
  ~Calls();
  Calls(const Calls&) = delete;

  // Carries calls by NCCL, which all members have opened. This rank's buffers are on `device`. Call before the first
  // start().
  Status carry_by(std::unique_ptr<comm::Backend> nccl, int device);

  // Records the position of the caller's stream. Runs in the caller's thread. Reports errors of the device.
  Result<Event> mark(const Request& request) const;
  // Called by the driver of the group, one call at a time. `request` is valid; its splits live until the operation has
  // ended.
  Result<std::unique_ptr<comm::Operation>> start(const Request& request, std::uint64_t sequence, Event ready);
  // For a group of one: runs the call and waits for at most `limit`.
  Status run_alone(const Request& request, Duration limit);
  // The group has failed: operations in flight end soon. Any thread.
  void abort();
  bool is_by_nccl(const Request& request) const { return nccl_ && nccl_->carries(request); }
  // Whether the ranks would copy directly. A rank whose memory CUDA does not share makes them stage the call.
  bool is_by_ipc(const Request& request) const {
    if (is_point_to_point(request.kind)) return may_have_note(request);
    return starts_by_ipc(request) && !is_by_nccl(request) && carries_by_ipc(request);
  }
  bool has_nccl() const { return nccl_ != nullptr; }

 private:
  bool starts_by_ipc(const Request& request) const {
    return setup_.tries_ipc && setup_.size > 1 && !is_point_to_point(request.kind);
  }
  bool may_have_note(const Request& request) const;
  // Null, with `ready` as it was: the message is staged.
  Result<std::unique_ptr<comm::Operation>> start_message(const Request& request, std::uint64_t sequence, Event& ready);
  Result<std::unique_ptr<comm::Operation>> stage(const Request& request, std::uint64_t sequence, Event ready);
  Result<std::shared_ptr<Pool>> pool(const Runtime& runtime);

  const Setup setup_;
  std::shared_ptr<Pool> pool_;  // used by the driver only
  std::map<int, SendTurns> turns_;
  std::shared_ptr<IpcGroup> ipc_;    // likewise
  std::shared_ptr<IpcPairs> pairs_;  // likewise
  int nccl_device_ = kHost;
  void* nccl_stream_ = nullptr;  // runs all NCCL calls of the group, in order
  std::unique_ptr<comm::Backend> nccl_;
};

}  // namespace tutti::cuda
