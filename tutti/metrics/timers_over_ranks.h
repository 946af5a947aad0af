#pragma once
// Timers (trace/timers.h) of all ranks of a group.
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/trace/timers.h"

namespace tutti {

// On every rank. Collective; ranks may have different timers. Throws Exception, as the verbs do.
std::vector<TimerSpread> timers_over_ranks(const Group& group, const std::vector<TimerReading>& mine);

}  // namespace tutti
