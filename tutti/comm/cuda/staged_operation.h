#pragma once
// A call on GPU memory that the CPU's backend carries through pinned memory. staged_operation.cc explains how.
#include <functional>
#include <map>
#include <memory>

#include "tutti/comm/cuda/pool.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"

namespace tutti::cuda {

// Starts a call on CPU memory, as the group would.
using StartOnHost =
    std::function<Result<std::unique_ptr<comm::Operation>>(const Request& request, std::uint64_t sequence)>;

// Makes sends to one peer start in the order of the calls, whichever copy is ready first. Used by the driver only.
struct SendTurns {
  std::uint64_t taken = 0, begun = 0;
  std::uint64_t take() { return taken++; }
  // Whether it is this turn. It is then the next one's.
  bool begin(std::uint64_t turn) {
    if (begun != turn) return false;
    ++begun;
    return true;
  }
};

struct StagedSetup {
  const Runtime* runtime = nullptr;
  std::shared_ptr<Pool> pool;
  StartOnHost start_on_host;
  int rank = 0, size = 1;
  std::map<int, SendTurns>* turns = nullptr;  // by peer; null: a send starts when its copy is done
};

// `ready` passes when the work before the call on the caller's stream is done. Called by the driver of the group.
// Borrowed objects must outlive the operation. If the GPU still uses the buffers a few seconds after the operation's
// end, the memory and streams are abandoned and never reused.
Result<std::unique_ptr<comm::Operation>> start_staged(const StagedSetup& setup, const Request& request,
                                                      std::uint64_t sequence, Event ready);

}  // namespace tutti::cuda
