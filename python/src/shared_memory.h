#pragma once
// tutti.shared_memory(): while one is entered, new CPU tensors of this process are in memory that the ranks of this
// host share. torch has one CPU allocator for all threads of a process, and so have we.
#include "backend.h"

namespace tutti::python {

class SharedMemory {
 public:
  explicit SharedMemory(const c10::intrusive_ptr<TuttiBackend>& backend) : backend_(backend) {}
  // From any thread. Several may be entered at a time: the memory is that of the last.
  void enter();
  void leave();
  const c10::weak_intrusive_ptr<TuttiBackend>& backend() const { return backend_; }

 private:
  const c10::weak_intrusive_ptr<TuttiBackend> backend_;
};

}  // namespace tutti::python
