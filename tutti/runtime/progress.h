#pragma once
// A rank's end of the progress page that its agent made for it (trace/progress/page.h).
#include <memory>

#include "tutti/base/error.h"
#include "tutti/trace/progress/page.h"

namespace tutti {

// The page behind TUTTI_PROGRESS_FD, or one of this process alone where no agent has made any (then nobody reads it; a
// page that cannot be had is told of, once, and is no error). Once a process: the agent may then look at the stacks of
// this process, and a fatal signal leaves the stack of its thread in the page before it goes its way.
std::unique_ptr<ProgressPage> open_progress();

}  // namespace tutti
