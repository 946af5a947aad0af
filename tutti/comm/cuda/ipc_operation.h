#pragma once
// A collective on GPU memory between ranks of one host, which copy from one another's memory. ipc_operation.cc explains
// how.
#include <functional>
#include <memory>

#include "tutti/comm/cuda/ipc_memory.h"
#include "tutti/comm/cuda/pool.h"
#include "tutti/comm/cuda/staged_operation.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"

namespace tutti::cuda {

// What the calls of a group share. Used by the driver only.
struct IpcGroup {
  IpcGroup(std::string name, int rank, int size) : name(std::move(name)), open(rank, size) {}
  const std::string name;
  OpenMemory open;
  bool has_reported = false;  // why a rank could not copy directly
};

struct IpcSetup {
  const Runtime* runtime = nullptr;
  std::shared_ptr<Pool> pool;
  std::shared_ptr<IpcGroup> group;
  StartOnHost start_on_host;
  // Starts the call on the path through the CPU.
  std::function<Result<std::unique_ptr<comm::Operation>>(Event ready)> start_staged;
  int rank = 0, size = 1;
};

// Whether ranks of one host can carry the call by copies and by the adder of this process. Small all_reduces are
// staged. If one rank cannot carry the call, all ranks stage it.
bool carries_by_ipc(const Request& request);

// As start_staged(). Every rank of the group calls it for every collective on GPU memory.
Result<std::unique_ptr<comm::Operation>> start_by_ipc(const IpcSetup& setup, const Request& request,
                                                      std::uint64_t sequence, Event ready);

}  // namespace tutti::cuda
