#pragma once
// Calls that Work::wait_on() left to a stream: the GPU has still to carry them out when the host goes on. They are
// kept until they have ended, of all groups of the process. Threads: any.
#include <memory>

#include "tutti/base/error.h"

namespace tutti {

namespace comm {
class GroupState;
class Submission;
void left_to_stream(const std::shared_ptr<GroupState>& group, std::shared_ptr<Submission> submission);
}  // namespace comm

// Waits on the host until all of them have ended. Returns the first error: kernels behind a call that failed have read
// numbers that nobody sent. Optimizers call this before a step.
Status await_stream_calls();

}  // namespace tutti
