#pragma once
// Who tries the way to whom in which turn, and what the measurements mean. Pure functions.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/doctor/finding.h"
#include "tutti/doctor/pair_probe.h"

namespace tutti {

// Every pair once, in turns in which each node has at most one partner: as in a tournament. Each pair has the smaller
// number first.
std::vector<std::vector<std::pair<int, int>>> turns_of_pairs(int nodes);

// A line or more for each pair; `hosts` are the nodes' names. A pair is slow by comparison with the others.
std::vector<Finding> check_pairs(const std::vector<PairMeasure>& measures, const std::map<int, std::string>& hosts);

}  // namespace tutti
