#pragma once
// Whether all ranks were started alike: replicas that learn at different rates drift apart without a word.
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

// Every rank calls, with the same names in the same order. kMismatch on every rank where a value is not that of rank 0,
// naming the first option that differs, the ranks and both values. Blocks like a collective.
Status check_same_options(const Group& world, const std::vector<std::pair<std::string, std::string>>& options);

}  // namespace tutti
