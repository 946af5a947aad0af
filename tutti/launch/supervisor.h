#pragma once
// The supervisor and the agent: two processes, so that `kill -9` of either leaves nothing running.
#include <sys/types.h>

#include <functional>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::launch {

// Forks. The child runs `agent` and exits with what it returns. The calling process stays as the supervisor: it passes
// signals on to the agent, and once the agent is gone, for whatever reason, ends every process that the agent left.
// Returns the exit code of the job, in the calling process only. The agent gets a descriptor that becomes readable when
// the supervisor dies; it must then call end_descendants() and leave. `killed` is called in the calling process, with
// the agent's pid, if a signal ended the agent: its temporary files are still there. Call while this process has one
// thread.
Result<int> run_supervised(const std::function<int(const Fd& supervisor_gone)>& agent,
                           const std::function<void(pid_t agent)>& killed);

// While the agent only waits, before it has workers: the user's signals end it at once, and so does the death of its
// supervisor. The destructor restores both. Start threads of the agent outside this scope, or they would take the
// signals.
class EndAtOnce {
 public:
  explicit EndAtOnce(const Fd& supervisor_gone);
  ~EndAtOnce();
  EndAtOnce(const EndAtOnce&) = delete;
};

}  // namespace tutti::launch
