#pragma once
// Two processes, so that `kill -9` of either leaves nobody behind (of both: what the workers had started).
#include <sys/types.h>

#include <functional>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// Forks. The child runs `agent` and exits with what it returns; the calling process stays as its keeper: it passes
// signals on to the agent, and when the agent is gone, however it went, ends every process that the agent left. Returns
// the exit code of the job in the calling process only. The agent gets a descriptor that becomes readable when its
// keeper dies; it must then end_descendants() and leave. `killed` is called in the calling process, with the agent's
// number, if a signal ended it: what it would have tidied up is still there. Call while this process has one thread.
Result<int> run_with_keeper(const std::function<int(const Fd& keeper_gone)>& agent,
                            const std::function<void(pid_t agent)>& killed);

// While the agent only waits, before it has workers: the user's signals end it at once, and so does the death of its
// keeper. The destructor puts things back. Threads of the agent must be started outside, or they would take the
// signals.
class EndAtOnce {
 public:
  explicit EndAtOnce(const Fd& keeper_gone);
  ~EndAtOnce();
  EndAtOnce(const EndAtOnce&) = delete;
};

}  // namespace tutti
