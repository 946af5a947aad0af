#pragma once
// How the agent of one node takes part in a job: it joins the other nodes for a round, learns what ends the round,
// reports its own faults, and joins again for the next round.
//
// A *round* is a period with a fixed set of nodes; its number is TUTTI_GENERATION. A *spare* is a node that came while
// the largest allowed number of nodes takes part; it waits in join().
//
//   auto rendezvous = TUTTI_TRY(open_rendezvous(options));
//   for (;;) {
//     Round round = TUTTI_TRY(rendezvous->join());
//     ... start workers; poll fd(); until next_event() ...
//     if (!rendezvous->round_end()->again) break;
//   }
//   rendezvous->leave(patience);
//
// Implementations: a single node (rendezvous.cc); --rdzv-backend static (static_rendezvous.cc), elastic
// (store_rendezvous.cc) and etcd (etcd_rendezvous.cc). The last three are small: member.h has what they share, and
// store_member.h what static and elastic share. tests/conformance/rendezvous_conformance.cc is the suite for all.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/launch/layout.h"

namespace tutti::launch {

// Why a round ends: the first fault that is reported wins on every node.
struct Fault {
  std::string text;        // "rank 2 (pid 8123 on host) was killed by SIGKILL"
  int code = 1;            // the exit code of the job
  bool report = false;     // the agent that reported it also writes a report with the rank's last output
  int rank = -1;           // the rank that failed; -1: no rank did
  std::int64_t step = -1;  // the last step that the rank had begun; -1: unknown
  double seconds = 0;      // how long the rank had run
  bool final = false;      // no restart is wanted: the user's wish, the time limit

  bool operator==(const Fault&) const = default;
};

// What every node knows of each node that takes part.
struct NodeFacts {
  std::string host;     // its name, for messages
  std::string address;  // numeric, the one that reached the store; empty on one node
  int ranks = 1;
  std::string about;  // NodesOptions::about of that node, unchanged

  bool operator==(const NodeFacts&) const = default;
};

struct Round {
  int number = 0;                // TUTTI_GENERATION
  Layout layout;                 // of all ranks; layout.node is this node
  std::vector<NodeFacts> nodes;  // by node
  int node = 0;                  // this one
  std::string store;             // where the store of the ranks is served
  std::string unix_store;        // the Unix socket of that store, if this node serves it; else empty
  std::string master_address;    // for the program; its port is free on node 0
  int master_port = 0;
  // TORCHELASTIC_RESTART_COUNT: rounds that ended by a fault. Changes of membership do not count.
  int restarts_used = 0;
};

// What follows a fault. Decided once for all nodes, by the node whose fault was reported first.
struct Verdict {
  bool restart = false;
  Duration pause{};    // before the ranks start again
  int code = 0;        // the exit code of the job if it does not restart; 0: the fault's own
  std::string reason;  // for people: "restart 2 of 3 in 4 s", "all 3 restarts are used", "step 120 failed 3 times"

  bool operator==(const Verdict&) const = default;
};
// `past`: the faults that ended earlier rounds, the oldest first. A pure function; any thread.
using Judge = std::function<Verdict(const std::vector<Fault>& past, const Fault& fault)>;

// What ended a round.
struct RoundEnd {
  enum class Kind {
    kFault,       // `fault` says what happened, `verdict` what follows
    kMembership,  // a node came or was lost: a new round is due
    kEnded,       // all ranks of all nodes ended well
  };
  Kind kind = Kind::kEnded;
  bool mine = false;    // kFault: reported by this node
  bool again = false;   // join() again once the workers are gone; else the job ends
  std::string text;     // kMembership: "node 2 (c) is lost: ...", "node d came"
  bool gentle = false;  // kMembership: all nodes of the round are alive, so their ranks can save before they end
  Fault fault;
  Verdict verdict;

  bool operator==(const RoundEnd&) const = default;
};

// Threads: one, the agent's. report() may run in another thread while the agent's makes no call.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Waits for the next round; a spare waits here until it is needed. No worker of this node may be alive. It waits at
  // most NodesOptions::timeout for enough nodes.
  //   kTimeout    names the missing nodes
  //   kMismatch   says what the nodes disagree on
  //   kAborted    interrupted, or the job has ended (then round_end() says how)
  virtual Result<Round> join() = 0;

  // For a poll loop: readable when an event may have come. -1: there are no other nodes. Call next_event() then, and
  // once a second.
  virtual int fd() const = 0;
  bool one_node() const { return fd() < 0; }
  // Takes in what happened elsewhere. A round has one event, its end; none: the round goes on.
  virtual const std::optional<RoundEnd>& next_event() = 0;
  // What ended the round, as far as next_event(), report() or finished() has learned; stays until join() is called.
  virtual const std::optional<RoundEnd>& round_end() const = 0;

  // Ends the round on all nodes, unless something else ended it before. Returns what did: with `mine` this fault. If
  // the other nodes cannot be reached this fault is the best that is known, and the job does not restart.
  virtual RoundEnd report(const Fault& fault) = 0;
  // The ranks of this node have ended well.
  virtual void finished() = 0;

  // Whether the others could go on if this node left now: enough of them stay, and their store does too or has a
  // standby.
  virtual bool dispensable() = 0;
  // The ranks of this node have saved, and it is about to leave. Ask again until it is true: then the ranks of all
  // other nodes have ended too, so that none is interrupted while it saves.
  virtual bool all_have_saved() = 0;
  // The last call. During a round this node leaves it, and the others start a new round. A coordinator whose job is
  // over waits until the others have left or are lost, at most `patience`.
  virtual void leave(Duration patience) = 0;
};

struct NodesOptions;  // options.h

// Serves the store, if that is this node's part. Call before anything that waits, so that a port in use is reported at
// once (kAddressInUse).
Result<std::unique_ptr<Rendezvous>> open_rendezvous(NodesOptions options);

}  // namespace tutti::launch
