#pragma once
// A barrier that finds out which ranks do not come. The ranks meet in the store, not in the group's own lines or links,
// so a barrier that fails leaves nothing half done there: the group is as good as before, for the ranks that gave up
// and for those that come late, and the next call meets as if this one had not been made.
//
// Threads: any; calls of one rank are made one after another.
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tutti/base/mutex.h"
#include "tutti/comm/group/peers.h"

namespace tutti::comm {

class MonitoredBarrier {
 public:
  // They outlive the object.
  MonitoredBarrier(Process& process, const GroupSpec& spec, const Peers& peers)
      : process_(process), spec_(spec), peers_(peers) {}

  // is_ended: whether the group or the job has ended; then the result means nothing.
  Status run(Duration limit, const std::function<bool()>& is_ended) TUTTI_EXCLUDES(mutex_);

 private:
  Result<std::string> await_verdict(std::uint64_t number, Deadline deadline, const std::function<bool()>& is_ended)
      TUTTI_REQUIRES(mutex_);
  std::string known_of(std::span<const int> late) const;

  Process& process_;
  const GroupSpec& spec_;
  const Peers& peers_;
  Mutex mutex_;  // for the whole call
  // A connection of its own: a rank that waits in the store would keep its other threads from reporting an error there.
  std::unique_ptr<Store> store_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t last_ TUTTI_GUARDED_BY(mutex_) = 0;
};

}  // namespace tutti::comm
