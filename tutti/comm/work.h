#pragma once
// The handle of an operation that was submitted.
#include <memory>

#include "tutti/base/error.h"

namespace tutti {

class Submission;  // comm/engine.h

// Copies share the operation. Dropping every copy does not cancel it: buffers stay in use until it has ended, so keep
// them alive until wait() returned. A default Work is one that has already succeeded.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<Submission> submission) : submission_(std::move(submission)) {}
  explicit Work(Status failed) : failed_(std::move(failed)) {}

  bool done() const;
  // Blocks until the operation ended; it has a deadline of its own, so this always returns. The waiting thread drives the
  // group itself where it can.
  Status wait() const;
  // wait(), and throws the error.
  void get() const { wait().or_throw(); }

 private:
  std::shared_ptr<Submission> submission_;
  Status failed_;
};

}  // namespace tutti
