#pragma once
// A call on GPU memory that the CPU's engine carries, through pinned memory: see staged_operation.cc for how.
#include <functional>
#include <map>
#include <memory>

#include "tutti/comm/cuda/pool.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"

namespace tutti::cuda {

// Starts a call on CPU memory, as the group would.
using StartOnHost = std::function<Result<std::unique_ptr<Operation>>(const Request& request, std::uint64_t sequence)>;

// Sends to one peer begin in the order of the calls, whichever copy is ready first. The driver's.
struct SendTurns {
  std::uint64_t taken = 0, begun = 0;
};

struct StagedSetup {
  const Runtime* runtime = nullptr;
  std::shared_ptr<Pool> pool;
  StartOnHost start_on_host;
  int rank = 0, size = 1;
  std::map<int, SendTurns>* turns = nullptr;  // by peer
};

// `ready`: what stands before the call on the caller's stream has been done once it has passed. The driver of the group
// calls. What is lent outlives the operation; if the GPU does not let go of the buffers within a few seconds of its
// end, the memory and streams that it uses are given up, never reused.
Result<std::unique_ptr<Operation>> start_staged(const StagedSetup& setup, const Request& request,
                                                std::uint64_t sequence, Event ready);

}  // namespace tutti::cuda
