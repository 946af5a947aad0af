#pragma once
// The nodes of a job, as one agent sees them: it meets the others for a round, hears what ends the round, tells of its
// own faults, and meets again for the next one.
//
// A *round* is one gathering of agents that agreed who takes part; its number is TUTTI_GENERATION. A *spare* is a node
// that has come while as many as may take part do; it waits in meet().
//
//   for (;;) {
//     Round round = TUTTI_TRY(nodes.meet());
//     ... start workers; poll descriptor(), call update(); until news() ...
//     if (!nodes.news()->again) break;
//   }
//   nodes.leave(patience);
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/launch/rounds/coordination.h"
#include "tutti/launch/rounds/key_watch.h"
#include "tutti/launch/rounds/pulse.h"
#include "tutti/launch/rounds/rendezvous_options.h"
#include "tutti/launch/rounds/round.h"
#include "tutti/launch/rounds/words.h"
#include "tutti/store/etcd/etcd_store.h"
#include "tutti/store/store_server.h"
#include "tutti/store/tcp_store.h"

namespace tutti {

struct NodesOptions {
  int nodes = 1;      // that take part, at most
  int min_nodes = 0;  // at least; 0: as many
  int node = 0;       // the number that is asked for; -1: any (not kStatic)
  RendezvousBackend backend = RendezvousBackend::kStatic;
  RankCounts counts;
  Address store;              // the meeting place. kStatic: node 0 serves here; kElastic: the host may be a name
  std::optional<bool> hosts;  // kElastic: whether this node serves; none: if the meeting place is its own address
  std::string etcd;           // kEtcd: "10.0.0.5:2379", several with commas
  Credentials credentials;
  std::string host;            // of this node, for words
  std::string about;           // what its agent wants the others to know (Round::nodes); at most some KiB
  std::string master_address;  // for the program; node 0's counts
  int master_port = 0;
  Duration timeout = std::chrono::minutes(5);             // for enough nodes to come
  Duration last_call = std::chrono::seconds(30);          // for more than enough
  Duration lost_after = std::chrono::milliseconds(2500);  // without a heartbeat
  Judge judge;                                            // none: a fault ends the job
  int interrupt = -1;                           // a descriptor; while it is readable meet() gives up with kAborted
  std::function<void(const std::string&)> say;  // lines while waiting; from any thread
};

// Threads: one, the agent's (besides those of the server, the coordinator and the heartbeats, which it has inside).
class Nodes {
 public:
  // Serves the store, if that is this node's part. Call before anything that waits, so that a port in use is told at
  // once.
  static Result<std::unique_ptr<Nodes>> open(NodesOptions options);
  ~Nodes();

  // Waits for the next round; a spare waits here until it is needed. No worker of this node may be alive. kTimeout
  // names the nodes that are missing; kMismatch what they disagree on; kAborted: interrupted, or the job has ended
  // (then news() says how).
  Result<Round> meet();

  // For a poll loop: readable when news may have come; -1 on one node. Then, and once a second, call update().
  int descriptor() const { return events_.get(); }
  void update();
  // What ended the round, once it has; stays until meet() is called again.
  const std::optional<News>& news() const { return news_; }
  bool one_node() const { return options_.nodes == 1 && options_.backend == RendezvousBackend::kStatic; }

  // Tells every rank and agent, if nothing else ended the round before. Returns what did: with `mine` this fault.
  // Where the store cannot be reached this fault is still the best that is known, and the job does not restart.
  News publish(const Fault& fault);
  // The ranks of this node have ended well.
  void done();
  // Whether leave() in the middle of this round would let the others go on: enough of them stay, and their store does.
  bool dispensable() const;
  // The ranks of this node have saved, and it is about to leave. Ask again until it is true: then those of all other
  // nodes have ended as well, and none of them is interrupted while it saves.
  bool all_have_saved();
  // Nothing more will be asked of the store. While the round goes on: this node leaves it, and the others meet anew.
  // A coordinator whose job is over waits until the others have left as well, or are lost.
  void leave(Duration patience);

 private:
  explicit Nodes(NodesOptions options);
  Limits limits() const;
  bool fixed() const { return limits().fixed(); }
  Status serve();
  Result<Round> meet_alone();
  Status reach(Deadline deadline);
  Status reach_store(Deadline deadline);
  Status connect_store(Deadline deadline);
  EtcdOptions etcd_options() const;
  Result<Coordinator> find_coordinator(Deadline deadline);
  Result<bool> still_there(const Coordinator& suspect);
  Status claim(const std::optional<std::string>& before);
  Result<std::optional<Seat>> wait_for_seat();
  Status no_heartbeat() const;
  Result<Round> sit_down(const Seat& seat);
  Result<std::string> store_of_ranks(const Round& round);
  Comer comer() const;
  Error sent_home(Error error);
  bool interrupted() const;
  void watch_events();
  void end_with(News news) { news_ = std::move(news); }
  void lose_touch(const std::string& how);

  NodesOptions options_;
  const std::string id_;                       // of this process
  std::unique_ptr<StoreServer> server_;        // where this node serves the job's store; goes last
  std::unique_ptr<StoreServer> round_server_;  // kEtcd, node 0: the ranks' store of the round, until the next
  std::unique_ptr<Store> store_;
  std::string store_address_, local_address_;
  std::optional<Coordinator> coordinator_;
  std::unique_ptr<Coordination> coordination_;  // where this agent coordinates
  std::unique_ptr<Pulse> pulse_;                // else its heartbeat
  std::unique_ptr<KeyWatch> watch_;             // of what ends the round
  Fd events_;                                   // epoll of the two
  int visit_ = 0;
  std::string suspect_;  // a coordinator that does not answer
  Round round_;
  std::vector<Fault> past_;  // that ended earlier rounds
  std::string coordinator_words_;
  std::optional<News> news_;
  bool done_ = false, leaving_ = false, store_lost_ = false;
};

}  // namespace tutti
