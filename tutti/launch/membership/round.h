#pragma once
// What a round is, and what ends one: the words between Nodes (nodes.h) and the agent.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/launch/layout.h"
#include "tutti/launch/roll_call.h"

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
  std::string store;             // where the store of the ranks is served
  std::string unix_store;        // the Unix socket of that store, if this node serves it; else empty
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

  bool operator==(const Verdict&) const = default;
};
// `past`: what ended earlier rounds by a fault, the oldest first. A pure function; any thread.
using Judge = std::function<Verdict(const std::vector<Fault>& past, const Fault& fault)>;

// What ended the round.
struct RoundEnd {
  enum class Kind {
    kFault,       // `fault` says what happened, `verdict` what comes now
    kMembership,  // a node came or was lost: a new round is due
    kEnded,       // all ranks of all nodes ended well
  };
  Kind kind = Kind::kEnded;
  bool mine = false;    // kFault: told by this node
  bool again = false;   // meet() again once the workers are gone; else the job ends
  std::string text;     // kMembership: "node 2 (c) is lost: ...", "node d came"
  bool gentle = false;  // kMembership: all who take part are there, so their ranks can save before they end
  Fault fault;
  Verdict verdict;

  bool operator==(const RoundEnd&) const = default;
};
// As JSON, in the store; `mine` is not part of it. What cannot be understood is a fault all the same.
std::string encode(const RoundEnd& news);
RoundEnd parse_news(const std::string& value);

}  // namespace tutti
