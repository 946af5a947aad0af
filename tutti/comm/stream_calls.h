#pragma once
// Calls that Work::wait_on() left to a stream: the host continues before the GPU has carried them out. Those of all
// groups of the process are kept here until they have ended. Threads: any.
#include <memory>

#include "tutti/base/error.h"

namespace tutti {

namespace comm {
class GroupState;
class Submission;
void left_to_stream(const std::shared_ptr<GroupState>& group, std::shared_ptr<Submission> submission);
}  // namespace comm

// Waits on the host until all of them have ended. Returns the first error, once: kernels behind a call that failed have
// read numbers that no rank sent. Optimizers call this before a step. Calls of a group whose last handle is gone are
// left out.
Status await_stream_calls();

}  // namespace tutti
