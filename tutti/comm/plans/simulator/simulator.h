#pragma once
// Runs the plans of all ranks of a group in one process, over a modeled network, and checks the result. Pure: no clock,
// no socket, no thread. The same scenario gives the same outcome to the last bit.
//
// It runs a plan by the rules of the executor (comm/links/executor.h). Steps with one peer in one direction run in
// order, and so do local steps. A step starts when the steps that it depends on are done.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti::comm {

struct Scenario {
  Kind kind = Kind::kAllReduce;
  std::function<Plan(const Shape&)> plan;
  Shape shape;  // of every rank, except for `rank`; without splits. hosts null: one host per rank
  // Empty: even parts. For a _v verb: one row with the elements of each rank's part. For an all_to_all: row r holds the
  // elements that rank r sends to each rank.
  std::vector<std::vector<std::size_t>> splits{};
  Network network{};
  Faults faults{};
  std::uint64_t seed = 0;      // for the jitter, and for the order of simultaneous events
  bool with_elements = false;  // real values in addition to expressions: needs memory for all vectors
};

// A rank that did not finish, and one of the peers that it waits for.
struct Waiting {
  enum class Why {
    kDead,     // the peer died before it sent the missing bytes
    kCut,      // the link was cut
    kWaits,    // the peer waits itself
    kNothing,  // the peer has finished: its plan sends fewer bytes than this rank's plan expects
    kFull,     // the stream to the peer is full, and the peer does not receive
  };
  int rank;
  int peer;
  std::uint64_t missing;  // bytes; a lower bound; kFull: bytes that the peer must receive
  Why why;
};

struct Outcome {
  bool finished = false;      // every rank ran all of its plan
  double seconds = 0;         // until the last rank finished; if some did not, until the last event
  std::vector<double> ended;  // by rank; -1: never
  std::vector<Waiting> waiting;
  std::string wrong;  // how the result differs from the verb's promise; empty if it is right
  // Totals of the plans, by rank.
  struct Traffic {
    std::uint64_t messages = 0, bytes = 0;  // sent
    std::uint64_t bytes_between = 0;        // the part of `bytes` that goes to other hosts
    std::uint64_t added = 0;                // bytes
  };
  std::vector<Traffic> traffic;
  std::uint64_t steps = 0;        // total over all plans
  int rounds = 0;                 // length of the longest chain of messages that depend on each other
  std::uint64_t fingerprint = 0;  // hash of all events and their times; differs between different runs
  bool right() const { return finished && wrong.empty(); }
};

// Fails with kLimit if the plans have more steps than fit in a few GB of memory.
Result<Outcome> simulate(const Scenario& scenario);

// Reports the causes and who waits for whom: "rank 3 died at 1.2 ms; ranks 0-2, 4-7 wait". Empty if all finished.
std::string explain(const Scenario& scenario, const Outcome& outcome);

}  // namespace tutti::comm
