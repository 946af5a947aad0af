#pragma once
// The agents of a job's nodes, as they meet in the store that node 0 serves: who runs how many ranks, what ended the
// job, who is lost.
//
// Keys:  agents/roll             the roll call (gather_all): counts and host names
//        agents/refused          why a node was turned away while others still waited, "NODE HOST: ERROR"; they give up
//        agents/told/<node>      that node has read it
//        agents/end              the first of "all ranks ended well" and a fault, "CODE\nTEXT"
//                                or "CODE report\nTEXT"; every agent watches it
//        agents/done, .../left   how many agents have seen their ranks end well; have left
//        agents/beat/<node>      counts up once a second
//        fault                   the text of the fault, for the ranks
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tutti/launch/layout.h"
#include "tutti/launch/roll_call.h"
#include "tutti/store/store_server.h"
#include "tutti/store/tcp_store.h"

namespace tutti {

struct NodesOptions {
  int nodes = 1;
  int node = 0;
  RankCounts counts;
  Address store;  // node 0 serves here, the others connect
  Credentials credentials;
  std::string host;                                // of this node, for words
  Duration timeout = std::chrono::minutes(5);      // for all nodes to come
  Duration lost_after = std::chrono::seconds(10);  // without a sign of life
  std::function<void(const std::string&)> say;     // lines while waiting
};

// Threads: one, the agent's (node 0 has the server's besides).
class Nodes {
 public:
  // Node 0: serves the store. Call before anything that waits, so that a port in use is told at once. Others: nothing
  // to do.
  static Result<std::unique_ptr<Nodes>> open(NodesOptions options);
  // Waits until every node is here. kTimeout names those that are missing; kMismatch what they disagree on.
  Status meet();

  const Layout& layout() const { return layout_; }
  std::string store_address() const { return store_address_; }  // for TUTTI_STORE

  // For a poll loop: readable when the job has ended elsewhere; -1 on one node. Then call update().
  int descriptor() const { return watch_ ? watch_->fd() : -1; }
  // Looks for the job's end, and once a second tells that this node is alive and looks for nodes that are lost.
  void update();
  bool one_node() const { return options_.nodes == 1; }
  bool job_ended() const { return ended_; }  // well or not
  const std::optional<Fault>& fault() const { return fault_; }

  // Tells every rank and agent; false if another node's fault was there first (fault() has it).
  bool publish(const Fault& fault);
  // The ranks of this node have ended well.
  void done();
  // Nothing more will be asked of the store. Node 0 waits until the others have read what ended the job.
  void leave(Duration patience);

 private:
  explicit Nodes(NodesOptions options) : options_(std::move(options)) {}
  Status roll_call(Deadline deadline);
  Result<std::vector<std::string>> gather_roll(const std::string& mine, Deadline deadline);
  Status tell_refusal(const Error& error);
  Status read_refusal();
  void let_others_read();
  void end_with(const std::string& value);
  void look_for_lost_nodes();
  void lose_store(const Error& error);

  NodesOptions options_;
  std::unique_ptr<StoreServer> server_;  // node 0
  std::unique_ptr<Store> store_;
  std::optional<Watch> watch_;
  Layout layout_;
  std::vector<std::string> hosts_;
  std::string store_address_;
  bool ended_ = false;
  std::optional<Fault> fault_;

  struct Beat {
    std::string value;
    Clock::time_point seen = now();
  };
  std::vector<Beat> beats_;  // node 0's view of the others
  Clock::time_point last_beat_{};
  std::int64_t beat_ = 0;
  bool done_ = false, store_lost_ = false;
};

}  // namespace tutti
