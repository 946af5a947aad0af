#pragma once
// The handle of an operation that was submitted. Threads: any.
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti {

namespace comm {
class GroupState;  // comm/group/group_state.h
class Submission;  // comm/group/call_queue.h
}  // namespace comm

// Copies share the operation. Dropping every copy does not cancel it: keep the buffers until wait() has returned. If an
// exception unwinds the stack past the last copy, the operation is ended first, since its buffers are about to go; this
// ends the group too (Aborted on every rank). A default-constructed Work has already succeeded.
class Work {
 public:
  Work() = default;
  Work(std::shared_ptr<comm::Submission> submission, std::shared_ptr<comm::GroupState> group);
  explicit Work(Status failed) : failed_(std::move(failed)) {}

  bool done() const;
  // Blocks until the operation has ended. Returns by the operation's deadline, plus the seconds that finding the cause
  // of an error takes. The waiting thread drives the group itself if no other thread does.
  Status wait() const;
  // wait(), and throws the error.
  void get() const { wait().or_throw(); }
  // wait(), but at most `limit`: none if the operation has not ended by then. It goes on, and may be waited for again.
  std::optional<Status> wait_for(Duration limit) const;
  // Waits for work that is put on `stream`, a cudaStream_t of the call's device, after this. Where NCCL carries the
  // call, the stream waits, and the host continues. Then an error comes from await_stream_calls() (comm/stream_calls.h)
  // and from every later call of the group, and the buffers may be freed in the order of the stream only. Other
  // calls are waited for on the host, as wait() does.
  Status wait_on(void* stream) const;
  // Calls `act` once the operation has ended: at once on this thread if it has, else on a thread that Tutti keeps for
  // such calls. `act` may start further operations and wait for them, and must not throw. kSystem: no thread can be
  // started.
  Status on_done(std::function<void()> act) const;

 private:
  struct Pending;  // shared by the copies
  std::shared_ptr<Pending> pending_;
  Status failed_;
};

// Several operations that were submitted together.
class Works {
 public:
  Works() = default;
  explicit Works(std::vector<Work> works) : works_(std::move(works)) {}

  std::size_t size() const { return works_.size(); }
  const Work& operator[](std::size_t i) const { return works_[i]; }
  auto begin() const { return works_.begin(); }
  auto end() const { return works_.end(); }
  bool done() const;
  // Waits for all of them, even if some fail. Returns the first error, in their order.
  Status wait() const;
  void get() const { wait().or_throw(); }

 private:
  std::vector<Work> works_;
};

}  // namespace tutti
