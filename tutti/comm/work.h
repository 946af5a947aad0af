#pragma once
// The handle of an operation that was submitted.
#include <memory>
#include <utility>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

namespace comm {
class GroupState;  // comm/group/group_state.h
class Submission;  // comm/group/call_queue.h
}  // namespace comm

// Copies share the operation. Dropping every copy does not cancel it: buffers stay in use until it has ended, so keep
// them alive until wait() returned. Only when an exception unwinds the stack past the last copy is the operation ended
// first, and its group with it (Aborted on every rank): the buffers are about to go. A default Work is one that has
// already succeeded.
class Work {
 public:
  Work() = default;
  Work(std::shared_ptr<comm::Submission> submission, std::shared_ptr<comm::GroupState> group);
  explicit Work(Status failed) : failed_(std::move(failed)) {}

  bool done() const;
  // Blocks until the operation ended; it has a deadline of its own, so this always returns. The waiting thread drives
  // the group itself where it can.
  Status wait() const;
  // wait(), and throws the error.
  void get() const { wait().or_throw(); }

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
  bool done() const;
  // Waits for all of them, whatever becomes of some; the first error in their order.
  Status wait() const;
  void get() const { wait().or_throw(); }

 private:
  std::vector<Work> works_;
};

}  // namespace tutti
