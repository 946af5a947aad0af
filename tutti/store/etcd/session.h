#pragma once
// The lease of a job in etcd, the conversation of one handle, and barriers. Private to store/etcd/.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "tutti/base/mutex.h"
#include "tutti/store/etcd/api.h"
#include "tutti/store/request.h"
#include "tutti/store/store.h"

namespace tutti::etcd {

// The lease that all keys of a job are attached to, and the thread that keeps it alive for this process.
//
// Threads: any. Shared by the handles of one connect_etcd(); the last one ends the thread. The lease itself lasts
// for as long as other processes keep it alive.
class Lease {
 public:
  // The job's, or a new one where this is the first process of the job.
  static Result<std::shared_ptr<Lease>> hold(const EtcdOptions& options, Deadline deadline);
  // Ends the job's lease, if there is one, and deletes all keys that are attached to it.
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

// One handle's conversation with etcd: reads, and changes that are made once, whatever is lost on the way.
//
// Threads: one at a time.
class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const EtcdOptions& options, Deadline deadline);
  // Another conversation of the same process, with the same lease.
  Result<std::unique_ptr<Session>> clone() const;

  Gateway& gateway() { return *gateway_; }
  const EtcdOptions& options() const { return options_; }

  struct Outcome {
    bool made = false;         // else the transaction's `failure` ran
    bool answer_lost = false;  // made, but `answer` is empty: it did not reach us
    TransactionAnswer answer;
  };
  Result<Outcome> change(Transaction transaction, Deadline deadline);

  // A key of the job. Keys of different kinds do not meet, and no kind of one key is a prefix of another's: the length
  // stands before it.
  enum class Kind : char { kValue = 'v', kQueue = 'q', kBarrier = 'm', kEntry = 'e' };
  std::string name(Kind kind, const std::string& key) const;
  std::string all_of(Kind kind) const { return options_.prefix + char(kind) + "/"; }
  // Differs from that of any other handle, of whatever process.
  const std::string& id() const { return id_; }

 private:
  Session(EtcdOptions options, std::unique_ptr<Gateway> gateway, std::shared_ptr<Lease> lease);

  EtcdOptions options_;
  std::unique_ptr<Gateway> gateway_;
  std::shared_ptr<Lease> lease_;
  std::string id_;
  std::uint64_t changes_ = 0;  // made so far: what the mark says
};

// Carries out `request`, whose op is kBarrier or kGatherAll (barrier.cc): enters, and waits for the other ranks until
// the deadline. About every `report_every` seconds it calls `waiting` (may be empty) with the missing ranks.
Result<store::Reply> barrier(Session& session, const store::Request& request, Deadline deadline,
                             const Store::Waiting& waiting, double report_every);

}  // namespace tutti::etcd
