#pragma once
// The lease on which all keys of a job hang, and the thread that keeps it alive for this process. Private to
// store/etcd/.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <thread>

#include "tutti/base/mutex.h"
#include "tutti/store/etcd/api.h"

namespace tutti::etcd {

// Threads: any. Shared by the handles of one connect_etcd(); the last one ends the thread. The lease itself then lives
// on for as long as other processes want it.
class Lease {
 public:
  // The job's, or a new one where this is the first process of the job.
  static Result<std::shared_ptr<Lease>> hold(const EtcdOptions& options, Deadline deadline);
  // The job's, if there is one, and all that hangs on it.
  static Status end(const EtcdOptions& options, Deadline deadline);
  ~Lease();
  Lease(const Lease&) = delete;

  std::int64_t id() const { return id_; }

 private:
  Lease(std::int64_t id, std::unique_ptr<Gateway> gateway, Duration length);
  void keep();

  const std::int64_t id_;
  const std::unique_ptr<Gateway> gateway_;  // the thread's
  const Duration length_;
  Mutex mutex_;
  std::condition_variable_any ended_;
  bool end_ TUTTI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tutti::etcd
