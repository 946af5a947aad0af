#pragma once
// What no algorithm can beat on a network of the model (network.h).
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti {

struct Bound {
  double latency = 0;    // seconds: of the one hop that somebody must wait for
  double bandwidth = 0;  // seconds: of the bytes that must pass the busiest card, or the busiest rank
  double seconds() const { return latency + bandwidth; }
};

// `shape` as in Scenario. Adding and the overhead of messages are left out.
Bound bound_of(Kind kind, const Shape& shape, const Network& network);

}  // namespace tutti
