#pragma once
// What the other nodes of a job say of their ranks: each agent leaves its status in the job's store once a second, and
// reads those of the others while somebody asks.
//
//   keys   agents/status/<round>/<node>   a NodeStatus as JSON
//
// Threads: a thread of its own talks to the store; all members are for the agent's.
#include <condition_variable>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/mutex.h"
#include "tutti/store/tcp_store.h"

namespace tutti {

class PeerStatus {
 public:
  // `store`: as TUTTI_STORE has it. Make it with signals blocked, so that its thread takes none.
  PeerStatus(std::string store, Credentials credentials, int round, int node, int nodes);
  PeerStatus(const PeerStatus&) = delete;
  ~PeerStatus();  // waits for a call under way, some seconds at most

  // This node's, for the next second.
  void tell(std::string status);
  // Somebody asks: the others' are read from now on, for a while.
  void want();
  // Those that were read since `since`; false: not yet.
  bool read_since(Clock::time_point since) const;
  // Of the other nodes, by node, as last read, and how long ago each of them had said something new.
  struct Told {
    std::string status;  // empty: nothing yet
    double age = 0;
  };
  std::map<int, Told> told() const;
  std::string trouble() const;  // why nothing can be read; empty: it can

 private:
  void run();
  Status turn(Store& store);

  const std::string store_;
  const Credentials credentials_;
  const int round_, node_, nodes_;
  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  bool ends_ TUTTI_GUARDED_BY(mutex_) = false;
  std::string mine_ TUTTI_GUARDED_BY(mutex_);
  Clock::time_point wanted_until_ TUTTI_GUARDED_BY(mutex_){}, read_at_ TUTTI_GUARDED_BY(mutex_){};
  struct Heard {
    std::string status;
    Clock::time_point changed{};
  };
  std::map<int, Heard> heard_ TUTTI_GUARDED_BY(mutex_);
  std::string trouble_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tutti
