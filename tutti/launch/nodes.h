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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/layout.h"
#include "tutti/launch/roll_call.h"
#include "tutti/store/store_server.h"
#include "tutti/store/tcp_store.h"

namespace tutti {

// What every node knows of each that takes part.
struct NodeFacts {
  std::string host;     // its name, for words
  std::string address;  // numeric, the one that reached the store; empty on one node
  int ranks = 1;
  std::string about;  // NodesOptions::about of that node, as it is

  bool operator==(const NodeFacts&) const = default;
};

struct Round {
  int number = 0;                // TUTTI_GENERATION
  Layout layout;                 // of all ranks; layout.node is this node
  std::vector<NodeFacts> nodes;  // by node
  int node = 0;                  // this one
  std::string store;             // TUTTI_STORE
  std::string master_address;    // for the program; its port is free on node 0
  int master_port = 0;
  int restarts_used =
      0;  // TORCHELASTIC_RESTART_COUNT: rounds that ended by a fault; changes of membership do not count
};

// What comes after a fault. Made once for all nodes, by the node whose fault was told first.
struct Verdict {
  bool restart = false;
  Duration pause{};    // before the ranks start again
  int code = 0;        // the exit code of the job where it does not restart; 0: the fault's own
  std::string reason;  // for words: "restart 2 of 3 in 4 s", "all 3 restarts are used", "step 120 failed 3 times"
};
// `past`: what ended earlier rounds by a fault, the oldest first. A pure function; any thread.
using Judge = std::function<Verdict(const std::vector<Fault>& past, const Fault& fault)>;

// What ended the round.
struct News {
  enum class Kind {
    kFault,       // `fault` says what happened, `verdict` what comes now
    kMembership,  // a node came or was lost: a new round is due
    kEnded,       // all ranks of all nodes ended well
  };
  Kind kind = Kind::kEnded;
  bool mine = false;   // kFault: told by this node
  bool again = false;  // meet() again once the workers are gone; else the job ends
  std::string text;    // kMembership: "node 2 (c) is lost: ...", "node d came"
  Fault fault;
  Verdict verdict;
};

struct NodesOptions {
  int nodes = 1;
  int node = 0;
  RankCounts counts;
  Address store;  // node 0 serves here, the others connect
  Credentials credentials;
  std::string host;            // of this node, for words
  std::string about;           // what its agent wants the others to know (Round::nodes); at most some KiB
  std::string master_address;  // for the program; node 0's counts
  int master_port = 0;
  Duration timeout = std::chrono::minutes(5);      // for all nodes to come
  Duration lost_after = std::chrono::seconds(10);  // without a sign of life
  Judge judge;                                     // none: a fault ends the job
  int interrupt = -1;                              // a descriptor; while it is readable meet() gives up with kAborted
  std::function<void(const std::string&)> say;     // lines while waiting
};

// Threads: one, the agent's (node 0 has the server's besides).
class Nodes {
 public:
  // Node 0: serves the store. Call before anything that waits, so that a port in use is told at once. Others: nothing
  // to do.
  static Result<std::unique_ptr<Nodes>> open(NodesOptions options);

  // Waits for the next round; a spare waits here until it is needed. No worker of this node may be alive. kTimeout
  // names the nodes that are missing; kMismatch what they disagree on; kAborted: interrupted, or the job has ended.
  Result<Round> meet();

  // For a poll loop: readable when news may have come; -1 on one node. Then, and once a second, call update().
  int descriptor() const { return watch_ ? watch_->fd() : -1; }
  void update();
  // What ended the round, once it has; stays until meet() is called again.
  const std::optional<News>& news() const { return news_; }
  bool one_node() const { return options_.nodes == 1; }

  // Tells every rank and agent, if nothing else ended the round before. Returns what did: with `mine` this fault.
  // Where the store cannot be reached this fault is still the best that is known, and the job does not restart.
  News publish(const Fault& fault);
  // The ranks of this node have ended well.
  void done();
  // Nothing more will be asked of the store. Node 0 waits until the others have read what ended the job.
  void leave(Duration patience);

 private:
  explicit Nodes(NodesOptions options) : options_(std::move(options)) {}
  Status reach_store(Deadline deadline);
  Status roll_call(Deadline deadline);
  Result<std::vector<std::string>> gather_roll(const std::string& mine, Deadline deadline);
  Status tell_refusal(const Error& error);
  Status read_refusal();
  void let_others_read();
  void end_with(const std::string& value, bool mine);
  void look_for_lost_nodes();
  void lose_store(const Error& error);

  NodesOptions options_;
  std::unique_ptr<StoreServer> server_;  // node 0
  std::unique_ptr<Store> store_;
  std::optional<Watch> watch_;
  Round round_;
  std::vector<Fault> past_;  // that ended earlier rounds
  std::string store_address_, local_address_;
  std::optional<News> news_;

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
