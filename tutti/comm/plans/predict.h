#pragma once
// How long an algorithm should take, in closed form: for choosing among the algorithms of a verb in no time, where the
// simulator (comm/plans/simulator) would run the plans of all ranks. The formulas are those of docs/collectives.md; the
// tests hold them against the simulator.
#include <cstddef>

#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti {

// Seconds until the last rank has ended. `bytes`: of the whole vector on a rank, as in docs/collectives.md; parts are
// taken as even and ranks as numbered host by host. The algorithm must implement the verb.
double predict(Algorithm algorithm, Kind kind, const Hosts& hosts, std::size_t bytes, const Network& network);

}  // namespace tutti
