#pragma once
// Which algorithm carries out a request over links: the one table. (Ranks of one host use the direct path instead,
// comm/direct.) The choice depends on the call, on where the ranks of the group are and on figures of the network that
// all ranks know alike, so all ranks choose alike.
#include <map>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/plans/network.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/request.h"

namespace tutti {

// The choices of one group. Of the algorithms that a verb has, the one that should take the least time by
// comm/plans/predict.h; a simpler one stays where the gain is below a tenth.
class Selector {
 public:
  // `forced`: an algorithm's name from TUTTI_ALGORITHM; used where it implements the verb, else the table decides.
  Selector(const Hosts& hosts, const Network& network, std::string forced);

  Algorithm algorithm(const Request& request) const;
  // "all_reduce: recursive_doubling below 64 KiB, ring", a line for each verb that has a choice.
  std::string to_string() const;

 private:
  struct Stretch {
    std::size_t below;  // bytes of the whole vector on a rank
    Algorithm algorithm;
  };
  using Stretches = std::vector<Stretch>;  // ascending; the last has no end
  struct Choice {
    Stretches even, uneven;
  };
  std::vector<Choice> choices_;  // by Kind
  int ranks_;
};

bool implements(Algorithm algorithm, Kind kind);
// kUnsupported where the algorithm does not implement the verb.
Result<Plan> make_plan(Algorithm algorithm, Kind kind, const Shape& shape);

}  // namespace tutti
