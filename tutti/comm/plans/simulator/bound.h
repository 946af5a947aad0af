#pragma once
// Lower bounds that no algorithm can beat on a network of the model (network.h).
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti::comm {

struct Bound {
  double latency = 0;    // seconds until the first byte reaches the busiest card or rank
  double bandwidth = 0;  // seconds for the bytes that must pass that card or rank
  double seconds() const { return latency + bandwidth; }
};

// `shape` as in Scenario. Ignores the cost of additions and the overhead of messages.
Bound bound_of(Kind kind, const Shape& shape, const Network& network);

}  // namespace tutti::comm
