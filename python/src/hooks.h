#pragma once
// What PyTorch's flight recorder wants to know of a backend: that a call has ended well, and that one has failed.
// Shared by the backend and its calls, which may outlive it. Threads: any. Hooks run without the lock: removing one may
// wait for what it waits for.
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tutti/base/mutex.h"

namespace tutti::python {

template <class... Arguments>
class Hooks {
 public:
  using Hook = std::function<void(Arguments...)>;

  void add(std::int64_t id, Hook hook) {
    const MutexLock lock(mutex_);
    hooks_.insert_or_assign(id, std::move(hook));
  }
  void remove(std::int64_t id) {
    const MutexLock lock(mutex_);
    hooks_.erase(id);
  }
  void run(Arguments... arguments) const {
    std::vector<Hook> hooks;
    {
      const MutexLock lock(mutex_);
      for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
    }
    for (const Hook& hook : hooks) hook(arguments...);
  }

 private:
  mutable Mutex mutex_;
  std::map<std::int64_t, Hook> hooks_ TUTTI_GUARDED_BY(mutex_);
};

struct HooksOfCalls {
  Hooks<std::uint64_t> ended_well;  // with TorchWork::getCompletionKey()
  Hooks<> failed;                   // perhaps several times for one failure
};

}  // namespace tutti::python
