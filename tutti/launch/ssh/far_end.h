#pragma once
// The far end of an ssh session of `tutti run --hosts`: the command `tutti node`.
#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/launch/ssh/words.h"

namespace tutti {

// Greets on standard output, reads its instructions from standard input (words.h), runs them as a child, passes signals
// on to it, and tells it to stop (SIGTERM) when the near end goes away. Says last how the child ended, and returns its
// exit code as a shell has it. Call from the main thread of a process that has no others. kUsage: started by a person,
// or the folder or program is not there; then the caller parts, having told why.
Result<int> run_far_end();

// The last line on standard output.
void part(const Parting& parting);

// In the child: on which it says that it has met the others. None: it was not started by a far end.
Fd take_far_end();
void say_met(const Fd& far_end);

}  // namespace tutti
