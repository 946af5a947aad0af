#include "tutti/comm/stream_calls.h"

#include <deque>
#include <utility>

#include "tutti/base/mutex.h"
#include "tutti/comm/group/group_state.h"

namespace tutti {
namespace {

// The last handle of a group ends its calls. Errors of a group that the program has dropped, for example to begin again
// after an error, are not reported.
struct LeftCall {
  std::weak_ptr<comm::GroupState> group;
  std::shared_ptr<comm::Submission> submission;
  bool has_succeeded() const { return submission->done.load(std::memory_order_acquire) && submission->result.ok(); }
};

struct LeftCalls {
  Mutex mutex;
  std::deque<LeftCall> calls TUTTI_GUARDED_BY(mutex);

  // Never destroyed: threads of autograd may outlive main().
  static LeftCalls& of_process() {
    static auto* const all = new LeftCalls;
    return *all;
  }
};

}  // namespace

void comm::left_to_stream(const std::shared_ptr<GroupState>& group, std::shared_ptr<Submission> submission) {
  LeftCalls& left = LeftCalls::of_process();
  const MutexLock lock(left.mutex);
  while (!left.calls.empty() && left.calls.front().has_succeeded()) left.calls.pop_front();
  left.calls.push_back({group, std::move(submission)});
}

Status await_stream_calls() {
  LeftCalls& left = LeftCalls::of_process();
  Status first;
  for (;;) {
    LeftCall call;
    {
      const MutexLock lock(left.mutex);
      if (left.calls.empty()) return first;
      call = left.calls.front();
    }
    if (const auto group = call.group.lock()) {
      if (Status status = group->wait(*call.submission); first.ok()) first = std::move(status);
    }
    // Only now, so that no other thread finds it gone before it has ended.
    const MutexLock lock(left.mutex);
    if (!left.calls.empty() && left.calls.front().submission == call.submission) left.calls.pop_front();
  }
}

}  // namespace tutti
