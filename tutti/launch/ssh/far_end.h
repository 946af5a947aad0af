#pragma once
// The far end of an ssh session of `tutti run --hosts`: the command `tutti node`.
#include "tutti/base/error.h"

namespace tutti {

// Greets on standard output, reads its instructions from standard input (words.h), runs them as a child, passes signals
// on to it, and tells it to stop (SIGTERM) when the near end goes away. Returns the child's exit code as a shell has
// it. Call from the main thread of a process that has no others. kUsage: started by a person, or the folder or program
// is not there.
Result<int> run_far_end();

}  // namespace tutti
