#pragma once
// Chooses the algorithm for a request over links. (Ranks of one host use comm/shared_memory instead.) The choice
// depends on the call, on the hosts of the group's ranks, and on network figures that are equal on all ranks. So all
// ranks make the same choice.
#include <map>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/request.h"

namespace tutti::comm {

// The choices of one group. It picks the algorithm of a verb with the shortest predicted time (comm/plans/predict.h). A
// simpler algorithm stays if the gain is below a tenth.
class Selector {
 public:
  // `forced`: an algorithm's name from TUTTI_ALGORITHM. It is used if it implements the verb; otherwise the table
  // decides.
  Selector(const Hosts& hosts, const Network& network, std::string forced);

  Algorithm algorithm(const Request& request) const;
  // "all_reduce: recursive_doubling below 64 KiB, ring"; one line per verb that has several algorithms.
  std::string to_string() const;

 private:
  struct Stretch {
    std::size_t below;  // bytes of the whole vector on a rank
    Algorithm algorithm;
  };
  using Stretches = std::vector<Stretch>;  // ascending; the last one has no upper bound
  struct Choice {
    Stretches even, uneven;
  };
  std::vector<Choice> choices_;  // by Kind
  int ranks_;
};

bool implements(Algorithm algorithm, Kind kind);
// Fails with kUnsupported if the algorithm does not implement the verb.
Result<Plan> make_plan(Algorithm algorithm, Kind kind, const Shape& shape);

}  // namespace tutti::comm
