#pragma once
// What the agents of a job tell each other through the job's store: how their ranks are doing, and the report of a
// failure.
//
//   agents/status/<round>/<node>     a NodeStatus as JSON
//   agents/report/<round>            the report's text, as the console of the failed rank's node shows it
//   agents/report_json/<round>       failure_json(), stored before the text
#include <condition_variable>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/mutex.h"
#include "tutti/store/tcp_store.h"

namespace tutti::launch {

// The status of the other nodes: this agent publishes its own once a second, and reads the others' while somebody asks.
//
// Threads: a thread of its own talks to the store, which may not answer; the members are for the agent's thread.
class PeerStatus {
 public:
  // `store`: as TUTTI_STORE has it. kSystem: no thread could be started.
  static Result<std::unique_ptr<PeerStatus>> start(std::string store, transport::Credentials credentials, int round,
                                                   int node, int nodes);
  PeerStatus(const PeerStatus&) = delete;
  ~PeerStatus();  // waits for a running call to the store, some seconds at most

  // This node's status, from the next second on.
  void publish(std::string status);
  // Reads the status of the other nodes from now on, for some seconds.
  void request();
  // Whether they were read since `since`.
  bool read_since(Clock::time_point since) const;
  // The other nodes, by node: the status as last read, and how long ago it last changed.
  struct Peer {
    std::string status;  // empty: nothing yet
    double age = 0;      // seconds
  };
  std::map<int, Peer> peers() const;
  std::string trouble() const;  // why nothing can be read; empty: it can

 private:
  PeerStatus(std::string store, transport::Credentials credentials, int round, int node, int nodes);
  void run();
  Status exchange(Store& store);

  const std::string store_;
  const transport::Credentials credentials_;
  const int round_, node_, nodes_;
  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  bool ends_ TUTTI_GUARDED_BY(mutex_) = false;
  std::string own_status_ TUTTI_GUARDED_BY(mutex_);
  Clock::time_point requested_until_ TUTTI_GUARDED_BY(mutex_){}, read_at_ TUTTI_GUARDED_BY(mutex_){};
  struct LastRead {
    std::string status;
    Clock::time_point changed{};
  };
  std::map<int, LastRead> last_read_ TUTTI_GUARDED_BY(mutex_);
  std::string trouble_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

// The report of a failure, from the node whose rank failed to the consoles and files of all other nodes.
struct SharedReport {
  std::string text, json;
};
// `store`: as TUTTI_STORE has it. Blocks some seconds at most. A text is cut to its first MiB; a longer JSON is left
// out.
Status share_report(const std::string& store, const transport::Credentials& credentials, int round,
                    const SharedReport& report);
// Waits for it; kTimeout: the other node has shared none. The JSON may be empty.
Result<SharedReport> read_report(const std::string& store, const transport::Credentials& credentials, int round,
                                 Duration patience);

}  // namespace tutti::launch
