#pragma once
// Predicts in closed form how long an algorithm takes. It is cheap enough to choose among the algorithms of a verb,
// where the simulator (comm/plans/simulator) would run the plans of all ranks. docs/dev/algorithms.md has the formulas.
// The tests compare them with the simulator.
#include <cstddef>

#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti::comm {

// Seconds until the last rank has finished. `bytes` is the size of the whole vector on a rank, as in
// docs/dev/algorithms.md. Assumes even parts and ranks numbered host by host. The algorithm must implement the verb.
double predict(Algorithm algorithm, Kind kind, const Hosts& hosts, std::size_t bytes, const Network& network);

}  // namespace tutti::comm
