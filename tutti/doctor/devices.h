#pragma once
// GPUs: how many there should be, how many a process would see, and whether one has been lost.
#include <optional>
#include <vector>

#include "tutti/doctor/finding.h"
#include "tutti/doctor/host_facts.h"

namespace tutti {

DeviceFacts look_at_devices();
// `ranks`: of this host. `expected`: how many devices the user counts on; none: as many as are there.
std::vector<Finding> check_devices(const DeviceFacts& facts, int ranks, std::optional<int> expected);

}  // namespace tutti
