#pragma once
// Which algorithm carries out a request over links: the one table. (Ranks of one host use the direct path instead,
// comm/direct.) The choice depends on the call and on where the ranks of the group are, so all ranks choose alike.
#include <string>

#include "tutti/base/error.h"
#include "tutti/comm/request.h"
#include "tutti/planning/collectives/plan.h"

namespace tutti {

// `forced`: an algorithm's name from TUTTI_ALGORITHM; used where it implements the verb, else the table decides.
Algorithm select_algorithm(const Request& request, const Hosts& hosts, const std::string& forced);
bool implements(Algorithm algorithm, Kind kind);
// kUnsupported where the algorithm does not implement the verb.
Result<Plan> make_plan(Algorithm algorithm, Kind kind, const Shape& shape);

}  // namespace tutti
