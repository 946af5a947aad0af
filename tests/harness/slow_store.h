#pragma once
// A store whose calls wait until the test opens it, or until their own deadline.
#include <condition_variable>

#include "tutti/base/mutex.h"
#include "tutti/store/memory_store.h"
#include "tutti/store/request.h"
#include "tutti/store/shared_table.h"

namespace tutti::test {

class SlowStore final : public Store {
 public:
  void open() {
    const MutexLock lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  int calls() const {
    const MutexLock lock(mutex_);
    return calls_;
  }
  // Another store on the same table, which is open.
  MemoryStore& fast() { return fast_; }
  Result<std::unique_ptr<Store>> clone(Deadline deadline) override { return fast_.clone(deadline); }

 private:
  Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) override {
    {
      MutexLock lock(mutex_);
      ++calls_;
      while (!is_open_)
        if (opened_.wait_until(lock, deadline.at()) == std::cv_status::timeout)
          return timeout_error(request, {}, deadline);
    }
    return table_->call(request, deadline, waiting, kReportEvery);
  }

  const std::shared_ptr<store::SharedTable> table_ = std::make_shared<store::SharedTable>();
  MemoryStore fast_{table_};
  mutable Mutex mutex_;
  std::condition_variable_any opened_;
  bool is_open_ TUTTI_GUARDED_BY(mutex_) = false;
  int calls_ TUTTI_GUARDED_BY(mutex_) = 0;
};

}  // namespace tutti::test
