#pragma once
// Runs the plans of all ranks of a group in one process, over a network that exists only as a model, and checks the
// result. Pure: no clock, no socket, no thread; the same scenario gives the same outcome to the last bit.
//
// It carries out a plan by the rules of the executor (comm/links/executor.h): steps with one peer in one direction are
// in order, local steps are in order, a step starts when those that it comes after are done.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti {

struct Scenario {
  Kind kind = Kind::kAllReduce;
  std::function<Plan(const Shape&)> plan;
  Shape shape;  // of every rank but for `rank`, without splits; hosts null: each rank has its own
  // None: even parts. Of a _v verb one row, the elements of each rank's part; of an all_to_all row r is what rank r
  // gives to each.
  std::vector<std::vector<std::size_t>> splits{};
  Network network{};
  Faults faults{};
  std::uint64_t seed = 0;      // of the jitter, and of what comes first among what happens at the same time
  bool with_elements = false;  // real values beside the expressions: memory for all vectors
};

// A rank that could not end, and one of those for whom it waits.
struct Waiting {
  enum class Why {
    kDead,     // the peer died before it sent what is missing
    kCut,      // the link was cut
    kWaits,    // the peer waits itself
    kNothing,  // the peer has ended: its plan sends less than this rank's expects
    kFull,     // the stream to the peer is full, and the peer does not receive
  };
  int rank;
  int peer;
  std::uint64_t missing;  // bytes, at least; kFull: bytes that the peer must receive
  Why why;
};

struct Outcome {
  bool finished = false;      // every rank carried out all of its plan
  double seconds = 0;         // until the last rank ended; if not all did, until nothing moved any more
  std::vector<double> ended;  // by rank; -1: never
  std::vector<Waiting> waiting;
  std::string wrong;  // what the result is, if not what the verb promises; empty: right
  // Of the plans, by rank.
  struct Traffic {
    std::uint64_t messages = 0, bytes = 0;  // sent
    std::uint64_t bytes_between = 0;        // of them to other hosts
    std::uint64_t added = 0;                // bytes
  };
  std::vector<Traffic> traffic;
  std::uint64_t steps = 0;        // of all plans
  int rounds = 0;                 // messages in the longest chain of which each needs the one before
  std::uint64_t fingerprint = 0;  // of all that happened, and when: tells two runs apart
  bool right() const { return finished && wrong.empty(); }
};

// kLimit if the plans have more steps than fit in a few GB of memory.
Result<Outcome> simulate(const Scenario& scenario);

// Who is to blame, and who waits for whom: "rank 3 died at 1.2 ms; ranks 0-2, 4-7 wait". Empty if all finished.
std::string explain(const Scenario& scenario, const Outcome& outcome);

}  // namespace tutti
