#pragma once
// Timers (trace/timers.h) of all ranks of a group.
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/trace/timers.h"

namespace tutti {

// Of each rank, by rank; on every rank. Collective. Throws Exception, as the verbs do.
std::vector<std::vector<TimerReading>> timers_of_ranks(const Group& group, const std::vector<TimerReading>& mine);
// On every rank. Collective; ranks may have different timers. Throws Exception, as the verbs do.
std::vector<TimerSpread> timers_over_ranks(const Group& group, const std::vector<TimerReading>& mine);

}  // namespace tutti
