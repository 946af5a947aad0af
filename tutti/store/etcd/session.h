#pragma once
// One handle's conversation with etcd: reads, and changes that are made once, whatever is lost on the way. Private to
// store/etcd/.
#include <memory>
#include <string>

#include "tutti/store/etcd/api.h"
#include "tutti/store/etcd/session.h"

namespace tutti::etcd {

// Threads: one at a time.
class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const EtcdOptions& options, Deadline deadline);
  // Another conversation of the same process, with the same lease.
  Result<std::unique_ptr<Session>> twin(Deadline deadline) const;

  Gateway& gateway() { return *gateway_; }
  const EtcdOptions& options() const { return options_; }

  struct Outcome {
    bool made = false;         // else the transaction's `failure` ran
    bool answer_lost = false;  // made, but `answer` is empty: etcd's word on it did not reach us
    TransactionAnswer answer;
  };
  Result<Outcome> change(Transaction transaction, Deadline deadline);

  // A key of the job. Keys of different kinds do not meet, and no kind of one key is a prefix of another's: the length
  // stands before it.
  enum class Kind : char { kValue = 'v', kQueue = 'q', kMeeting = 'm', kEntry = 'e' };
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

}  // namespace tutti::etcd
